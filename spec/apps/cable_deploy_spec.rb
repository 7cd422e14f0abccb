# frozen_string_literal: true

require_relative "../support/app_rails"
require_relative "../support/monitor_client"

RSpec.describe "The WebSockets of a Rails app's Action Cable", skip: AppRails.missing do
  include_context "with a Rails app"

  sockets = Integer(ENV.fetch("SOCKETS", 60))

  before do
    @server = @app.serve(options: { MaxWorkers: 2, MaxThreads: 3, Refork: false, Linger: 600, Pid: "app.pid", MaxRequestPerChild: 0 })
    @server.await_workers(2)
    @monitor = MonitorClient.new(@server.file("app.control"))
  end

  # All hear what one of them says, so none was closed.
  def expect_all_to_hear(ones, text)
    ones.sample.say(text)
    expect(ones.map { |one| one.heard["text"] }.tally).to eq(text => ones.size)
  end

  # @return [Hash{String => Array<Integer>}] pids by state
  def workers = @monitor.status["workers"].group_by { |one| one["state"] }.transform_values { |ones| ones.map { |one| one["pid"] } }

  # One worker may have all sockets.
  def replaced?(before)
    found = workers
    (found.keys - %w[idle lingering]).empty? && found["idle"]&.size == 2 && (found["idle"] & before).empty? && found.key?("lingering")
  end

  { "a HUP" => :HUP, "recycling" => :TERM }.each do |what, signal|
    it "C5 go on over #{what} (#{sockets})" do
      ones = Array.new(sockets) { AppRails::Notes.new(@server) }
      expect_all_to_hear(ones, "before")
      before = workers.values.flatten
      signal == :HUP ? @server.signal(:HUP) : before.each { |pid| @server.signal(signal, to: pid) }
      eventually(60, -> { "#{workers}\n#{@server.log[-1500..]}" }) { replaced?(before) }
      expect_all_to_hear(ones, "after")
      expect(@server.log).not_to match(/kill|ends its streams|given up/)
    end
  end
end
