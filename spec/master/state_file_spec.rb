# frozen_string_literal: true

RSpec.describe "The state file of a puma.rb", once: "what the master writes" do
  include ReexecHelpers

  it "C2 names this master again when a new one has failed" do
    puma = "workers 1\nbind 'tcp://127.0.0.1:0'\nstate_path 'state'\n"
    server = start(options: { ConfigFile: "puma.rb" }, files: { "puma.rb" => puma })
    state = -> { server.lines_of("state").join("\n")[/^pid: (\d+)$/, 1].to_i }
    expect(state.call).to eq(server.pid)
    # The new master writes the file, and has no worker that boots.
    server.write("puma.rb", "#{puma}before_worker_boot { exit!(1) }\n")
    usr2(server)
    failed = new_master(server)
    eventually { state.call == failed }
    server.signal(:TERM, to: failed)
    server.await_log(/the new master \(pid #{failed}\) .*; this one carries on/)
    expect(state.call).to eq(server.pid)
  end
end
