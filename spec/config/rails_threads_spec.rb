# frozen_string_literal: true

# How many threads a Rails app has whose user has set no number.
RSpec.describe "MaxThreads of a Rails app", once: "the same in every Ruby" do
  include CommandFolder

  SAYS_SO = /: \d+ workers? (?:\(auto\) )?of 3 threads \(as Rails has them under Puma; max_threads sets the number\)$/.freeze

  before do
    write("config/application.rb", "class Shop < Rails::Application\nend\n")
    write("config.ru", "run ->(env) { [200, {}, [env['rack.multithread'].to_s]] }")
  end

  def first_line(*arguments, **keywords)
    server = ready("-b", "tcp://127.0.0.1:0", "-e", "test", *arguments, **keywords)
    [server.log[/Fastrack \d.*$/], server.get.body]
  end

  it "are Rails' three, and the start says so" do
    expect(first_line).to match([SAYS_SO, "true"])
    write("config/fastrack.rb", "max_workers 1")
    expect(first_line).to match([SAYS_SO, "true"])
    FileUtils.rm("#{@dir}/config/fastrack.rb")
    write("config/puma.rb", "workers 2")
    expect(first_line).to match([SAYS_SO, "true"])
  end

  it "are as many as an option, a variable, a puma.rb or a fastrack.rb says" do
    expect(first_line("-t", "1")).to match([/ of 1 thread$/, "false"])
    expect(first_line(env: { "RAILS_MAX_THREADS" => "2" })).to match([/ of 2 threads$/, "true"])
    write("config/puma.rb", "threads 1, 1")
    expect(first_line).to match([/ of 1 thread$/, "false"])
    write("config/fastrack.rb", "listen '127.0.0.1:0'\npreload_app true")
    expect(first_line).to match([SAYS_SO, "true"])
    write("config/fastrack.rb", "max_threads 4")
    expect(first_line).to match([/ of 4 threads$/, "true"])
  end

  it "are one with a unicorn.rb, with rackup, and in every other app" do
    write("unicorn.rb", "worker_processes 1\nlisten '127.0.0.1:0'")
    expect(first_line("-c", "unicorn.rb")).to match([/ of 1 thread$/, "false"])
    rackup = Server.start(ru: File.read("#{@dir}/config.ru"), files: { "config/application.rb" => "Rails::Application" }, options: { MaxWorkers: 1 })
    expect([rackup.log[/Fastrack \d.*$/], rackup.get.body]).to match([/ of 1 thread$/, "false"])
    write("config/application.rb", "module Shop\nend\n")
    expect(first_line).to match([/ of 1 thread$/, "false"])
  end
end
