# frozen_string_literal: true

require "etc"

# Makes a cluster in a directory, with the rows of a file, and becomes its PostgreSQL server, on a unix socket there: serve.rb DIR
# ROWS. It is a process of the lane, which has the programs.

# Debian keeps most of the programs off PATH.
places = [*Dir.glob("/usr/lib/postgresql/*/bin").sort_by { |dir| -dir[/\d+/].to_i }, *ENV.fetch("PATH").split(":")]
bin = places.find { |dir| %w[initdb postgres].all? { |program| File.executable?(File.join(dir, program)) } }
abort "no PostgreSQL here; run as root: apt-get install postgresql" unless bin

dir, rows = ARGV
rows = File.open(rows)
if Process.uid.zero?
  # It refuses to be root. Debian's package makes this user.
  account = Etc.getpwnam("postgres")
  File.chown(account.uid, account.gid, dir)
  Process.initgroups(account.name, account.gid)
  Process::GID.change_privilege(account.gid)
  Process::UID.change_privilege(account.uid)
end
Dir.chdir(dir)
data = File.join(dir, "data")
system(File.join(bin, "initdb"), "-D", data, "-U", "bench", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync", exception: true)
# A single-user server reads the rows before anybody can connect. -j: a command ends with a semicolon and an empty line.
system(File.join(bin, "postgres"), "--single", "-j", "-F", "-c", "exit_on_error=on", "-D", data, "postgres", in: rows, out: File::NULL, exception: true)
exec File.join(bin, "postgres"), "-D", data, "-k", dir, "-c", "listen_addresses=", "-c", "fsync=off", "-c", "autovacuum=off"
