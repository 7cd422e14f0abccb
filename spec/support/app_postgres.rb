# frozen_string_literal: true

require "etc"
require "fileutils"
require "open3"
require "tmpdir"

# A PostgreSQL of the specs' own: in a temporary folder, on a unix socket there and on no port, gone when it is stopped.
class AppPostgres
  # Where Debian keeps the programs, of which most are not on PATH.
  PLACES = [*Dir.glob("/usr/lib/postgresql/*/bin").sort_by { |dir| -dir[/\d+/].to_i }, *ENV.fetch("PATH").split(":")].freeze

  # Whom it runs as when we are root, which it refuses to be. Debian's package makes this user.
  USER = "postgres"

  DEADLINE = 60

  class Failed < StandardError; end

  def self.bin = PLACES.find { |dir| %w[initdb postgres].all? { |program| File.executable?(File.join(dir, program)) } }

  attr_reader :dir

  def initialize
    @dir = Dir.mktmpdir("fastrack-pg")
    File.chown(account.uid, account.gid, @dir) if account
    initialise
    @pid = as_user("postgres", "-D", data, "-k", @dir, "-c", "listen_addresses=", "-c", "fsync=off")
    await_ready
  end

  # What a client, ours or the app, has to have in its environment (libpq's variables).
  def environment = { "PGHOST" => @dir, "PGUSER" => "fastrack", "PGDATABASE" => "postgres", "PGPASSWORD" => nil, "PGPORT" => "5432" }

  def query(sql)
    connection = PG.connect(host: @dir, user: "fastrack", dbname: "postgres")
    connection.exec(sql).values
  ensure
    connection&.close
  end

  def backends
    query(<<~SQL).flatten.map(&:to_i).sort
      SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()
    SQL
  end

  def stop
    return unless @pid

    # Fast shutdown: clients that are still there are disconnected (postgres(1)).
    Process.kill(:INT, @pid)
    Eventually.eventually(DEADLINE, "PostgreSQL did not stop") { Process.wait(@pid, Process::WNOHANG) }
    @pid = nil
    FileUtils.remove_entry(@dir)
  end

  private

  def data = File.join(@dir, "data")
  def log = File.join(@dir, "log")

  def initialise
    pid = as_user("initdb", "-D", data, "-U", "fastrack", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
    _, status = Process.wait2(pid)
    raise Failed, "initdb failed:\n#{File.read(log)}" unless status.success?
  end

  def await_ready
    Eventually.eventually(DEADLINE, -> { "PostgreSQL did not start:\n#{File.read(log)}" }) do
      if Process.wait(@pid, Process::WNOHANG)
        @pid = nil
        raise Failed, "PostgreSQL ended:\n#{File.read(log)}"
      end
      query("SELECT 1")
    rescue PG::ConnectionBad
      nil
    end
  end

  def account = (@account ||= Etc.getpwnam(USER) if Process.uid.zero?)

  def as_user(program, *arguments)
    fork do
      if account
        Process.initgroups(USER, account.gid)
        Process::GID.change_privilege(account.gid)
        Process::UID.change_privilege(account.uid)
      end
      exec(File.join(self.class.bin, program), *arguments, chdir: @dir, in: File::NULL, out: [log, "a"], err: %i[child out])
    end
  end
end
