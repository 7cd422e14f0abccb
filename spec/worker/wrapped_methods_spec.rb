# frozen_string_literal: true

# Core methods that gems wrap, with wrappers that take what most callers give.
RSpec.describe "Core methods that an app has wrapped", once: "processes" do
  app = "run ->(env) { sleep if env['PATH_INFO'] == '/hang'; [200, {}, [Process.pid.to_s]] }\n"
  names_only = <<~RUBY
    names_only = Module.new { def trap(signal, *command, &block) = (signal.to_sym; super) }
    [Kernel, Kernel.singleton_class, Signal.singleton_class].each { |one| one.prepend(names_only) }
  RUBY
  debug = Gem::Specification.find_all_by_name("debug").any?

  { "a wrapper of trap that takes names only" => names_only, "debug" => ("require 'debug'\n" if debug) }.each do |what, text|
    it "workers boot, HUP replaces them, and a hanging request is dumped, with #{what}" do
      skip "no debug gem here" unless text
      limit = GcMode.patient(1)
      server = Server.ready(fastrack: true, ru: text + app, options: { MaxWorkers: 1, RequestTimeout: limit })
      before = server.get.body
      server.signal(:HUP)
      eventually { server.get.body != before }
      expect(server.get("/hang").status).to eq(504)
      server.await_log(/the main thread:\n +\S+config.ru:\d+:in [`'](?:Kernel#)?sleep'/)
    end
  end

  it "the original handler of a wrapped trap is set again in a process that the app forks" do
    server = Server.ready(fastrack: true, options: { MaxWorkers: 1 }, ru: names_only + <<~'RUBY')
      run ->(_env) { [200, {}, [fork { sleep }.to_s]] }
    RUBY
    child = server.get.body.to_i
    server.signal(:TERM, to: child)
    eventually { !ProcessTable.alive?(child) }
  end
end
