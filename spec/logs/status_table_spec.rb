# frozen_string_literal: true

require "io/console"
require "pty"

RSpec.describe "`fastrack status` of a worker whose request has a long path", linux: "a thread with descriptors of its own", once: "a thread without Ruby" do
  include MonitorHelpers

  long = "/#{"long/" * 25}end"

  before(:context) do
    @server = serving(ru: <<~'RUBY', options: { MaxWorkers: 2, RequestTimeout: 0 })
      GO = File.expand_path("go", __dir__)
      run ->(_env) { sleep(0.01) until File.exist?(GO); [200, {}, []] }
    RUBY
    @held = hung(@server, long, 1)
  end

  after(:context) do
    @server.write("go", "")
    @held.each(&:close)
  end

  # What a terminal of so many columns gets. The command begins when the terminal has its size.
  def on_terminal(columns)
    command = [RbConfig.ruby, "-w", Server::COMMAND, "status", "-P", @pid_file]
    PTY.spawn(Server::CLEAN_ENVIRONMENT.merge("TERM" => "xterm", "NO_COLOR" => "1"), "sh", "-c", 'read -r go; exec "$@"', "sh", *command) do |screen, keyboard, pid|
      screen.winsize = [24, columns]
      screen.echo = false
      keyboard.puts
      text = +""
      eventually(Server::DEADLINE, -> { text }) do
        text << screen.readpartial(65_536) if screen.wait_readable(1)
        false
      rescue Errno::EIO, EOFError
        true
      end
      Process.wait(pid)
      return text.split("\r\n")
    end
  end

  it "has the request in a line of its own, beneath its worker, from the path's begin on, in a terminal of 80 columns" do
    lines = on_terminal(80)
    expect(lines.map(&:length).max).to eq(80)
    index = lines.index { |line| line.include?("GET /") }
    expect(lines[index - 1]).to match(/^ +\d +\d+ busy /)
    expect(lines[index]).to match(%r{\A {12}\d[\d.smh]* GET /long/long/.*\.\.\.\z})
    expect(lines.join).not_to include(" gen ")
  end

  it("has all of it in a terminal that is wide enough") { expect(on_terminal(200).grep(/ GET #{long}\z/).size).to eq(1) }

  it "has all of it in a pipe, whatever COLUMNS says" do
    output, status = Open3.capture2e(Server::CLEAN_ENVIRONMENT.merge("COLUMNS" => "40"), RbConfig.ruby, Server::COMMAND, "status", "-P", @pid_file)
    expect([output[/ GET (.*)$/, 1], status.exitstatus]).to eq([long, 0])
  end
end
