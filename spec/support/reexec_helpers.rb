# frozen_string_literal: true

# What specs about two masters have in common. ClientLoop has the clients.
module ReexecHelpers
  # Answers with a version, which a deploy changes, and the master's pid.
  def app(version)
    "run ->(env) { sleep 0.01 if env['PATH_INFO'] == '/slow'; [200, {}, ['#{version} ' + Process.ppid.to_s]] }"
  end

  # A server whose workers are all ready.
  def start(ru: app("v1"), options: {}, **keywords)
    Server.ready(ru: ru, options: { MaxWorkers: 2, MaxRequestPerChild: 0 }.merge(options), **keywords)
  end

  # One with two masters, which both serve.
  def start_both(options: {}, **keywords)
    start(options: { AutoQuit: false }.merge(options), **keywords).tap do |server|
      usr2(server)
      server.await_log("is ready", 3)
      await_processes(server, 6)
    end
  end

  # While clients ask, old and new ones, slow and fast; gives what they got.
  def unnoticed(server, **keywords, &block)
    loop = ClientLoop.run(server, paths: %w[/ /slow / /slow], **keywords, &block)
    expect(loop.failures).to eq([])
    loop.bodies
  end

  def usr2(server, to: server.pid) = server.signal(:USR2, to: to)

  # The pid of the new master that is being started.
  def new_master(server) = eventually(20, -> { server.log }) { server.log[/^fastrack: starting a new master \(pid (\d+)\)$/, 1] }.to_i

  # Has a new master take over, and gives its pid.
  def replace_master(server)
    usr2(server)
    taken_over(server)
  end

  # Waits for the end of the old master.
  def taken_over(server)
    expect(server.wait.exitstatus).to eq(0)
    expect(server.master).not_to eq(server.pid)
    server.master
  end

  # Masters and workers, of both generations; 0: no process at all.
  def await_processes(server, count)
    found = -> { count.zero? ? server.processes : server.processes.reject { |pid| ProcessTable.title(pid).start_with?("fastrack generation") } }
    eventually(20, -> { "#{found.call.size} processes instead of #{count}:\n#{server.log}" }) { found.call.size == count }
  end

  def pid_in(server, file = "app.pid") = server.lines_of(file).first.to_i
end
