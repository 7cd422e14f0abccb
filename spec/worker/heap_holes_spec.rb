# frozen_string_literal: true

# What is free between two blocks of malloc lies in pages that workers share.
RSpec.describe "Holes in the heap", linux: "smaps (proc(5))" do
  # Drops each fourth of 60 MB of strings. Then /fill makes 10 MB, and answers with how many MB of pages became this process's own for it.
  let(:app) { <<~'RUBY' }
    make = ->(count) { Array.new(count) { "x" * 1_000 } }
    holes = -> { $kept ||= make.(60_000).each_with_index.reject { |_, nr| nr % 4 == 0 }.map(&:first).tap { GC.start } }
    own = -> { File.read("/proc/self/smaps_rollup")[/^Private_Dirty:\s+(\d+)/, 1].to_i / 1024 }
    holes.call if ENV["HOLES"]
    run lambda { |env|
      holes.call if env["PATH_INFO"] == "/holes"
      before = own.call
      $made = make.(10_000) if env["PATH_INFO"] == "/fill"
      [200, {}, ["#{own.call - before}"]]
    }
  RUBY

  { "master" => { HOLES: "yes" }, "mold" => {} }.each do |which, env|
    it "of the #{which} are not written to by its workers" do
      server = Server.ready(ru: app, options: { MaxWorkers: 2 }, env: env)
      if which == "mold"
        6.times { server.get("/holes") }
        server.signal(:URG)
        server.await_log("refork: generation 2 ")
      end
      expect(server.get("/fill").body.to_i).to be_between(9, 20)
    end
  end
end
