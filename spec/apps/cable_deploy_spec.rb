# frozen_string_literal: true

require_relative "../support/app_rails"
require_relative "../support/monitor_client"

RSpec.describe "The WebSockets of a Rails app's Action Cable", skip: AppRails.missing do
  include_context "with a Rails app"

  sockets = Integer(ENV.fetch("SOCKETS", 60))

  before(:context) do
    @server = @app.serve(options: { MaxWorkers: 2, MaxThreads: 3, Refork: false, Linger: 600, Pid: "app.pid", MaxRequestPerChild: 0 })
    @server.await_workers(2)
    @monitor = MonitorClient.new(@server.file("app.control"))
  end

  # All hear what one of them says, so none was closed.
  def expect_all_to_hear(ones, text)
    ones.sample.say(text)
    expect(ones.map { |one| one.heard["text"] }.tally).to eq(text => ones.size)
  end

  def idle = @monitor.status["workers"].select { |one| one["state"] == "idle" }.map { |one| one["pid"] }
  def states = @monitor.status["workers"].map { |one| one["state"] }.tally

  it "C5 go on over a HUP and recycling (#{sockets})" do
    ones = Array.new(sockets) { AppRails::Notes.new(@server) }
    expect_all_to_hear(ones, "before")
    @server.signal(:HUP)
    eventually(60) { states == { "idle" => 2, "lingering" => 2 } }
    expect_all_to_hear(ones, "after HUP")
    before = idle
    before.each { |pid| @server.signal(:TERM, to: pid) }
    eventually(60) { (idle & before).empty? && states == { "idle" => 2, "lingering" => 2 } }
    expect_all_to_hear(ones, "after recycling")
    expect(@server.log).not_to match(/kill|ends its streams|given up/)
  end
end
