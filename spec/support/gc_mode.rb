# frozen_string_literal: true

# The garbage collector's mode in every server that the specs start, by the environment variable FASTRACK_GC:
# `compact` or `stress`, see GcMode::Worker. Examples tagged `quiet` measure the collector itself, or would last for ever:
# `bin/lib/specs.sh --tag ~quiet` leaves them out.
module GcMode
  # How many times as long as usual everything awaited may take: what is not awaited is not slower.
  PATIENCE = { nil => 1, "compact" => 4, "stress" => 20 }.freeze

  # What makes exceptions' messages longer: that takes minutes when each allocation collects garbage. Each Ruby has it by
  # a constant if it has it at all.
  TALKERS = { ErrorHighlight: "error_highlight", DidYouMean: "did_you_mean", SyntaxSuggest: "syntax_suggest" }
            .select { |name, _| Object.const_defined?(name) }.values.freeze

  module_function

  def name
    mode = ENV["FASTRACK_GC"].to_s
    mode = nil if mode.empty?
    raise ArgumentError, "FASTRACK_GC=#{mode}: it is #{PATIENCE.keys.compact.join(" or ")}" unless PATIENCE.key?(mode)

    mode
  end

  def patient(seconds) = seconds * PATIENCE.fetch(name) * Float(ENV.fetch("TEST_PATIENCE", 2))

  # A server's environment with the mode in it.
  def in_environment(env)
    return env unless name

    words = [*TALKERS.map { |name| "--disable=#{name}" }, "-r#{File.join(__dir__, "gc_mode/worker")}", env["RUBYOPT"]]
    env.merge("RUBYOPT" => words.compact.join(" "))
  end
end
