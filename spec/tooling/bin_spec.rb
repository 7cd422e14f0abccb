# frozen_string_literal: true

# The scripts that a newcomer runs.
RSpec.describe "bin", once: "a newcomer's scripts" do
  # What bin/serve starts is a server like any other.
  let(:server_class) do
    Class.new(Server) do
      private

      def rackup_command(*)
        [File.join(Server::ROOT, "bin/serve"), *(["config.ru"] unless File.zero?(File.join(dir, "config.ru")))]
      end
    end
  end

  def serving(ru, **env)
    server = server_class.new(ru: ru, env: { "RUBY" => RbConfig.ruby, **env.transform_keys(&:to_s) })
    # By then bin/setup has looked at everything.
    eventually(120, -> { server.log }) { server.log.include?("starting ") }
    server.await_listening
    yield server
  ensure
    expect(server&.finish.to_a).to eq([])
  end

  it "serves the example on the port and with the workers that are asked for, and TERM ends it with nothing left" do
    FreePort.keep do |port|
      serving("", PORT: port.to_s, MAX_WORKERS: "3") do |server|
        expect(server.log).to include("http://127.0.0.1:#{port}/")
        workers = server.await_workers(3)
        expect(workers).to include(server.get.body[/worker.*process (\d+), of master #{server.master}/, 1].to_i)
        expect(server.stop.exitstatus).to eq(0)
        expect(server.processes).to be_empty
      end
    end
  end

  it "serves an app of its user's" do
    serving(Rackups::PID, PORT: "0", MAX_WORKERS: "1") { |server| expect(server.await_workers(1)).to eq([server.get.body.to_i]) }
  end

  it "names all that is missing at once, where bin/setup cannot install it" do
    missing = %w[cargo make apt-get dpkg]
    Dir.mktmpdir("fastrack-bin") do |dir|
      %w[/bin /usr/bin].flat_map { |place| Dir.glob("#{place}/*") }.uniq { |file| File.basename(file) }
                       .each { |file| File.symlink(file, File.join(dir, File.basename(file))) unless missing.include?(File.basename(file)) }
      env = { "PATH" => dir, "HOME" => dir, "CARGO_HOME" => nil, "CARGO" => nil, "RUBY" => RbConfig.ruby, "FASTRACK_NO_INSTALL" => "yes", "FASTRACK_LANE" => nil }
      output, status = Open3.capture2e(env, File.join(Server::ROOT, "bin/setup"))
      expect(output).to match(/missing: .*\bmake; install it with: /).and match(/missing: cargo .*rustup/)
      expect(status.exitstatus).to eq(1)
    end
  end
end
