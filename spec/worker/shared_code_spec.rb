# frozen_string_literal: true

require_relative "../spec_helper"
require "open3"

# What is defined after the fork clears caches that a worker shares with the master until then.
RSpec.describe "The code that workers share with the master", exec: "what is loaded" do
  # Notes what is defined, and how often Ruby has cleared caches: Probe.note; Probe.changes since then.
  let(:probe) { <<~'RUBY' }
    module Probe
      COUNTS = %i[class_serial global_constant_state constant_cache_invalidations global_cvar_state].freeze

      class << self
        def note = @noted = look

        def changes
          now = look
          modules = now.delete(:modules).reject { |one, parts| @noted[:modules][one] == parts }
          names = modules.keys.map { |one| Module.instance_method(:inspect).bind_call(one) }
          changed = now.reject { |what, value| @noted[what] == value }
          changed.map { |what, value| "#{what}: #{value.is_a?(Array) ? value - @noted[what] : value - @noted[what].to_i}" } + names
        end

        private

        def look
          modules = {}.compare_by_identity
          ObjectSpace.each_object(Module) { |one| modules[one] = parts(one) }
          { features: $LOADED_FEATURES.dup, modules: modules, **RubyVM.stat.slice(*COUNTS) }
        end

        def parts(one)
          [one.ancestors.size, one.constants(false).sort, one.instance_methods(false).sort, one.private_instance_methods(false).sort]
        end
      end
    end
  RUBY

  # GET / answers with what the request, and all that came before it since the worker was ready, has changed.
  let(:app) { <<~RUBY }
    run lambda { |env|
      env["rack.input"].read
      Fastrack.stats
      [200, {}, [Probe.changes.join("\\n")]]
    }
  RUBY

  def config(words = "")
    <<~RUBY
      require File.join(__dir__, "probe.rb")
      Probe.note
      max_workers 1
      before_fork { Probe.note }
      after_worker_ready do
        File.write(File.join(__dir__, "changes"), Probe.changes.join("\\n"))
        Probe.note
      end
      #{words}
    RUBY
  end

  { "by default" => "", "with threads" => "max_threads 3",
    "with OobGC=auto" => "oobgc 'auto'", "with scheduled collections" => "oobgc true\nmax_gc_per_request 1",
    "with MaxMemoryPerChild" => "max_memory_per_child '1G'" }.each do |how, words|
    it "is as generation 0 left it when a worker is ready, and after its first requests, #{how}" do
      server = Server.ready(ru: app, config: config(words), files: { "probe.rb" => probe }, fastrack: true)
      expect(server.lines_of("changes")).to eq([])
      expect([server.get.body, server.post("/", "x" * 2_000_000).body]).to eq(["", ""])
    end
  end

  it "is seen to change when a worker prepends to Kernel, and when it loads a file" do
    words = "after_fork { require File.join(__dir__, 'late')\nKernel.prepend(Module.new) }"
    server = Server.ready(ru: app, config: config(words), files: { "probe.rb" => probe, "late.rb" => "module Late; end" })
    expect(server.lines_of("changes")).to include(/\Afeatures: .*late\.rb/, "Kernel", "Late")
  end

  it "leaves Ruby's own modules as they are in a program that requires the gem and serves nothing" do
    script = <<~RUBY
      modules = [Kernel, Kernel.singleton_class, Process, Process.singleton_class, IO.singleton_class, File.singleton_class]
      before = modules.map(&:ancestors)
      require "rhebok-rs"
      p modules.map(&:ancestors) == before
    RUBY
    output, = Open3.capture2e(Server::CLEAN_ENVIRONMENT, RbConfig.ruby, "-w", "-I", Server::LIB, "-e", script)
    expect(output).to eq("true\n")
  end
end
