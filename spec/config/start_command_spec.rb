# frozen_string_literal: true

# Of programs that change the words, folder and environment that they were started with before the server is there.
RSpec.describe "A new master's start", exec: "proc(5) of a new process" do
  include ReexecHelpers

  let(:answering) { 'run ->(_env) { [200, {}, [[File.read(File.join(__dir__, "version")), ENV["BUNDLE_GEMFILE"]].join(" ")]] }' }

  def release(dir, version)
    folder = File.join(dir, version).tap { |path| FileUtils.mkdir_p(path) }
    File.write(File.join(folder, "Gemfile"), "gem \"rack\"\ngem \"rackup\" if Gem::Specification.any? { |spec| spec.name == \"rackup\" }\n" \
                                             "gem \"rhebok-rs\", path: #{Server::ROOT.inspect}\n")
    File.write(File.join(folder, "config.ru"), answering)
    File.write(File.join(folder, "version"), version)
    # In one step, as Capistrano does it.
    File.symlink(version, File.join(dir, "next"))
    File.rename(File.join(dir, "next"), File.join(dir, "current"))
    folder
  end

  it "C1 is with the Gemfile of the release that the link leads to by then, where it was `bundle exec`" do
    Dir.mktmpdir do |dir|
      dir = File.realpath(dir)
      first = release(dir, "v1")
      skip "Bundler does not find the gems on this machine" unless system("bundle check", chdir: first, %i[out err] => File::NULL)
      server = start(ru: "", rackup: true, options: { MaxWorkers: 1 }, wrapper: ["sh", "-c", <<~SH, "sh"])
        cd #{dir}/current && while [ "$1" != rackup ]; do shift; done && exec bundle exec "$@"
      SH
      expect(server.get.body).to eq("v1 #{dir}/v1/Gemfile")
      %w[v2 v3].each_with_index do |version, index|
        release(dir, version)
        FileUtils.rm_r(File.join(dir, "v#{index + 1}"))
        old = server.master
        usr2(server, to: old)
        eventually(20, -> { server.log }) { server.master != old && [true, false].include?(server.ended?) && !ProcessTable.alive?(old) }
        expect(server.get.body).to eq("#{version} #{dir}/#{version}/Gemfile")
      end
    end
  end

  describe "where rackup has gone into the background, and to / (--daemonize)" do
    include Folder

    after do
      masters = [@old, @fresh].compact
      masters.each { |number| ProcessTable.alive?(number) && Process.kill(:TERM, number) }
      eventually { masters.none? { |number| ProcessTable.alive?(number) } }
    end

    # @return [Integer] the master's pid
    def daemonize(*options)
      release(@dir, "v1")
      arguments = %W[-s Fastrack -D -E none -O Path=#{@dir}/app.sock -O MaxWorkers=1 --pid #{@dir}/app.pid] + options
      environment = Server::CLEAN_ENVIRONMENT.merge("RUBYLIB" => Server::LIB)
      expect(system(environment, "sh", "-c", "cd #{@dir}/current && rackup \"$@\"", "sh", *arguments)).to be(true)
      eventually { pid&.then { |number| number if ProcessTable.title(number) == "fastrack master" } }
    end

    def pid
      Integer(File.read("#{@dir}/app.pid"), exception: false)
    rescue Errno::ENOENT
      # A new master is about to write it.
    end

    def await_fresh = @fresh = eventually { pid&.then { |number| number unless number == @old } }

    # A daemon, and a new master of it whose worker is stuck.
    def with_stuck_master(*options, ru: "")
      File.write("#{@dir}/config.rb", "after_fork { sleep if File.exist?('#{@dir}/stuck') }")
      @old = daemonize("-O", "ConfigFile=#{@dir}/config.rb", *options)
      expect(ask).to start_with("v1")
      File.write("#{@dir}/stuck", "")
      File.write("#{@dir}/v1/config.ru", "#{ru}\n#{answering}")
      Process.kill(:USR2, @old)
      await_fresh
      eventually { ProcessTable.title(@fresh) == "fastrack master" }
    end

    def ask = HttpResponse.ask(UNIXSocket.new("#{@dir}/app.sock")).body

    it "C1 is in the folder that rackup was started in, and is a daemon again" do
      @old = daemonize
      expect(ask).to start_with("v1")
      release(@dir, "v2")
      Process.kill(:USR2, @old)
      eventually { !ProcessTable.alive?(@old) }
      await_fresh
      expect(ask).to start_with("v2")
    end

    it "B-faults ends after BootTimeout, though it is another process by then than the one that the old master has started" do
      with_stuck_master("-O", "BootTimeout=#{GcMode.patient(4)}", "-O", "GracefulTimeout=1")
      eventually { !ProcessTable.alive?(@fresh) && pid == @old }
      expect(ask).to start_with("v1")
    end

    it "B-faults ends with a server that gets TERM while it boots, though it is another process by then, and the first one is still there" do
      with_stuck_master(ru: "def Process.daemon(*) = fork && sleep")
      Process.kill(:TERM, @old)
      eventually { [@old, @fresh].none? { |number| ProcessTable.alive?(number) } }
    end
  end
end
