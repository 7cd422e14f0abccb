# frozen_string_literal: true

require_relative "../../lib/fastrack"
require_relative "../../lib/fastrack/configuration"
require "stringio"

RSpec.describe "What counts where nobody says anything", once: "options" do
  include CommandFolder

  # How many workers a start has, and what it says of that.
  def configuration(*words, env: {})
    output, status = fastrack("check", "-b", "127.0.0.1:0", *words, env: env)
    raise output unless status.zero?

    [output[/configuration: (\d+) workers?/, 1].to_i, output[/^fastrack: (workers auto: \d+)/, 1]]
  end

  it "is as many workers as fit with the command in production, which the log says, and one in development" do
    count = Etc.nprocessors
    expect([configuration("-e", "production"), configuration("-e", "production", env: { "WEB_CONCURRENCY" => "3" }), configuration])
      .to match([[be <= count, /\Aworkers auto: \d+\z/], [3, nil], [1, nil]])
    write("config/fastrack.rb", "request_timeout 5")
    expect([configuration("-e", "production"), configuration(env: { "APP_ENV" => "production" })].map(&:last)).to all(match(/auto/))
  end

  it "is one worker, which is not recycled, with a puma.rb" do
    write("config/puma.rb", "threads 3")
    write("config.ru", "run ->(_env) { [200, {}, []] }")
    server = ready("-b", "127.0.0.1:0", "-e", "production")
    expect(server.log).to include("Fastrack is ready Workers:1")
    puma = Dir.chdir(@dir) { Fastrack::Configuration.new({ user_supplied_options: [] }, environment: { "RACK_ENV" => "production" }, output: StringIO.new) }
    expect([puma.max_request_per_child, puma.draw_request_limit]).to eq([0, 0])
    write("config/puma.rb", "max_request_per_child 10")
    expect(Dir.chdir(@dir) { Fastrack::Configuration.new({ user_supplied_options: [] }, environment: {}, output: StringIO.new) }.max_request_per_child).to eq(10)
  end

  it "is Rhebok's five workers with rackup, and one line says what that means" do
    line = /^fastrack: 5 workers, Rhebok's default, because no number is set: workers share no memory.*; -O max_workers=1 is one process$/
    expect(Server.ready(ru: Rackups::PID).log.scan(line).size).to eq(1)
    said = [{ options: { MaxWorkers: 2 } }, { config: "max_workers 2" }, { env: { "WEB_CONCURRENCY" => "2" } }].map { |given| Server.ready(ru: Rackups::PID, **given).log }
    expect(said).to all(satisfy { |log| !log.match?(/Rhebok's default/) })
  end
end
