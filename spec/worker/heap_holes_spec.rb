# frozen_string_literal: true

# What is free between two blocks of malloc lies in pages that workers share.
RSpec.describe "Holes in the heap", linux: "smaps (proc(5))" do
  # Strings of 1,000 bytes; each fourth is dropped, which leaves 15 MB of holes in 60 MB. /fill makes 10 MB of such strings, and answers
  # with how many MB of pages that takes of this process alone.
  let(:app) { <<~'RUBY' }
    make = ->(count) { Array.new(count) { "x" * 1_000 } }
    holes = -> { $kept ||= make.(60_000).each_with_index.reject { |_, nr| nr % 4 == 0 }.map(&:first).tap { GC.start } }
    own = -> { File.read("/proc/self/smaps_rollup")[/^Private_Dirty:\s+(\d+)/, 1].to_i / 1024 }
    holes.call if ENV["HOLES"] == "boot"
    run lambda { |env|
      holes.call if env["PATH_INFO"] == "/holes"
      before = own.call
      $made = make.(10_000) if env["PATH_INFO"] == "/fill"
      [200, {}, ["#{own.call - before}"]]
    }
  RUBY

  def serving(**more) = Server.ready(ru: app, options: { MaxWorkers: 2, MaxRequestPerChild: 0, ControlPath: "control" }, **more)

  it "of the master are not written to by workers" do
    expect(serving(env: { "HOLES" => "boot" }).get("/fill").body.to_i).to be_between(9, 20)
  end

  it "of a mold are not written to by its workers" do
    server = serving
    6.times { server.get("/holes") }
    Process.kill(:URG, server.pid)
    server.await_log("refork: generation 2 ")
    expect(server.get("/fill").body.to_i).to be_between(9, 20)
  end
end
