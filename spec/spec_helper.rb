# frozen_string_literal: true

%w[digest fileutils json open3 socket stringio tmpdir].each { |library| require library }

# What needs no library and no app of its own; the rest is required where it is used.
%w[
  eventually process_table http_response server rackups portable client_loop http_helpers kept_helpers reexec_helpers free_port
  command_folder edge hanging_app hostile in_process monitor_helpers threads_app http_strace http_nginx memory_cgroup app_requirements
].each { |name| require_relative "support/#{name}" }

RSpec.configure do |config|
  config.disable_monkey_patching!
  config.warnings = true
  config.order = :defined
  config.include Eventually
  # Names as short as these are not for everybody's specs.
  { HttpHelpers => "connections|http|proxy|rack|rhebok", HttpGates => "connections", KeptHelpers => "connections", Hostile => "hostile" }
    .each { |helpers, folders| config.include helpers, file_path: %r{/spec/(?:#{folders})/} }

  # What these tags keep from running everywhere and always has a reason.
  %i[once alone packaging].each do |tag|
    config.define_derived_metadata(tag) do |metadata|
      raise ArgumentError, "#{metadata[:location]}: #{tag}: takes the reason" if metadata[tag] == true
    end
  end

  if Front::PROXIED
    config.before { |example| Front.difference(example.metadata)&.then { |reason| skip(reason) } }
    config.after(:suite) { Front.stale(RSpec.world.all_examples).then { |stale| raise stale.join("
") unless stale.empty? } }
  end

  config.append_after { Clients.close_all }

  # A server started inside an example ends with that example; one started in a before(:context) hook ends with its top-level
  # group. The log is shown while the failed example is still known; then stopping may add a failure of its own.
  config.append_after do |example|
    Server.show_logs if example.exception
    Server.stop_all(:example)
  end

  config.append_after(:context) { Server.stop_all(:context) }
end
