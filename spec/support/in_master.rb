# frozen_string_literal: true

# Changes code of the master. A ConfigFile cannot: generation 0 reads it.
module InMaster
  # @param name [String] a class or module of Fastrack's
  # @param code [String] evaluated in it once it is defined
  # @return [Hash] keywords of Server.start
  def self.change(name, code)
    text = <<~RUBY
      TracePoint.new(:end) do |event|
        next unless event.self.name == #{name.dump}

        event.disable
        event.self.class_eval(#{code.dump})
      end.enable
    RUBY
    { files: { "in_master.rb" => text }, env: { "RUBYOPT" => "-r./in_master.rb" } }
  end
end
