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

  # When the server has closed each of them.
  def ends(ones)
    closed = ones.map do |one|
      Thread.new do
        loop { one.next_message }
      rescue EOFError, SystemCallError
        Eventually.now
      end
    end
    closed.map(&:value)
  end

  def idle = @monitor.status["workers"].select { |one| one["state"] == "idle" }.map { |one| one["pid"] }
  def states = @monitor.status["workers"].map { |one| one["state"] }.tally

  it "C5 go on over a HUP, recycling and a refork, as long as Linger, and then come to their end one after the other (#{sockets})" do
    ones = Array.new(sockets) { AppRails::Notes.new(@server) }
    expect_all_to_hear(ones, "before")
    @server.signal(:HUP)
    eventually(60) { states == { "idle" => 2, "lingering" => 2 } }
    expect_all_to_hear(ones, "after HUP")
    before = idle
    before.each { |pid| @server.signal(:TERM, to: pid) }
    eventually(60) { (idle & before).empty? && states == { "idle" => 2, "lingering" => 2 } }
    expect_all_to_hear(ones, "after recycling")
    eventually(60) { @server.get("/notes") && @monitor.status["workers"].count { |one| one["state"] == "idle" && one["requests"].positive? } == 2 }
    @server.signal(:URG)
    eventually(90, -> { @server.log }) { @server.get("/notes") && @server.log.include?("refork: generation") }
    eventually(60, -> { states.to_s }) { states == { "idle" => 2, "lingering" => 2 } }
    expect_all_to_hear(ones, "after a refork")
    expect(@server.log).not_to match(/kill|ends its streams|given up/)
    # The ConfigFile has the last word.
    @server.reload("#{File.read(@server.file("fastrack.rb"))}linger 1\n")
    times = ends(ones)
    expect([times.size, times.max - times.min]).to match([sockets, be > 5])
  end
end
