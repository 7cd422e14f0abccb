# frozen_string_literal: true

# preload/program.rb SCRIPT HELP...: has SCRIPT show its help, and keeps what it has loaded. Then each request on stdin is
# answered on stdout with the pid of a process that goes on as a new Ruby with SCRIPT would; see Preload.
class Preload
  # Those of Rack's that rackup and `fastrack` load for an app.
  RACK = %i[Builder CommonLogger ContentLength Lint ShowExceptions TempfileReaper].freeze

  class << self
    def load_all
      answers = $stdout.dup
      $stdout.reopen(File::NULL)
      script = ARGV.shift
      begin
        load(script)
      rescue SystemExit
        $stdout.reopen(answers)
      end
      answers.close
      require "fastrack/native"
      RACK.each { |name| Rack.const_get(name) }
      3.times { GC.start }
      script
    end

    # Returns in the processes that are to be servers.
    def await
      loop do
        request = Marshal.load($stdin) # rubocop:disable Security/MarshalLoad
        unless (between = fork)
          server = fork or return become(*request)
          Process.setpgid(server, server)
          $stdout.syswrite("#{server}\n")
          exit!
        end
        Process.wait(between)
        # By now it is a child of the process that has asked.
        $stdout.syswrite("\n")
      end
    rescue EOFError
      exit!
    end

    private

    def become(command, arguments, env, dir, log)
      Dir.chdir(dir)
      ENV.replace(env)
      $stdin.reopen(File::NULL)
      $stdout.reopen(log, "w")
      $stderr.reopen($stdout)
      ARGV.replace(arguments)
      Fastrack::StartCommand.instance_variable_set(:@current, start_command(command))
    end

    # What a new Ruby reads in proc(5), for USR2.
    def start_command(command)
      proc_dir = Dir.mkdir(".proc") && File.expand_path(".proc")
      { "cmdline" => command, "environ" => ENV.map { |pair| pair.join("=") } }.each do |name, list|
        File.binwrite(File.join(proc_dir, name), list.map { |text| "#{text}\0" }.join)
      end
      File.symlink("/proc/self/exe", File.join(proc_dir, "exe"))
      Fastrack::StartCommand.new(proc_dir: proc_dir)
    ensure
      Dir.each_child(proc_dir) { |name| File.unlink(File.join(proc_dir, name)) }
      Dir.rmdir(proc_dir)
    end
  end
end

$PROGRAM_NAME = Preload.load_all
Preload.await
load $PROGRAM_NAME
