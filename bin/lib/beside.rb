# frozen_string_literal: true

# Runs a command beside specs: beside.rb COMMAND [ARGUMENT...]. Examples that have to run alone wait until it has ended, see
# specs.rb. The status is the command's.

require "English"

File.open("tmp/test/alone.lock", "a") do |lock|
  lock.flock(File::LOCK_SH)
  system(*ARGV)
end
exit $CHILD_STATUS.exitstatus || 1
