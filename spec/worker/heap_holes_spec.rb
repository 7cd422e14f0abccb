# frozen_string_literal: true

# What is free between two blocks of malloc lies in pages that workers share; of the stack they have no unused ones.
RSpec.describe "Holes in the heap", linux: "smaps (proc(5))" do
  # Drops each fourth of 60 MB of strings. Then /fill makes 10 MB, and answers with how many MB of pages became this process's own for it.
  let(:app) { <<~'RUBY' }
    make = ->(count) { Array.new(count) { "x" * 1_000 } }
    holes = -> { $kept ||= make.(60_000).each_with_index.reject { |_, nr| nr % 4 == 0 }.map(&:first).tap { GC.start } }
    own = -> { File.read("/proc/self/smaps_rollup")[/^Private_Dirty:\s+(\d+)/, 1].to_i / 1024 }
    deep = ->(levels) { [levels].each { |left| deep.(left - 1) if left > 0 } }
    stack = -> { File.read("/proc/self/smaps")[/\[stack\].*?^Rss: +(\d+)/m, 1].to_i }
    $left = (ENV["HOLES"] ? holes.call : deep.(3_000)).then { stack.call }
    run lambda { |env|
      next [200, {}, ["#{$left} #{stack.call}"]] if env["PATH_INFO"] == "/stack"
      holes.call if env["PATH_INFO"] == "/holes"
      before = own.call
      $made = make.(10_000) if env["PATH_INFO"] == "/fill"
      [200, {}, ["#{own.call - before}"]]
    }
  RUBY

  it "and what the boot has left on the stack are not the workers'" do
    expect(Server.ready(ru: app, options: { MaxWorkers: 1 }).get("/stack").body).to match(/\A\d{4,} \d{1,3}\z/)
  end

  it "and what the boot has left on the stack is not the master's" do
    config = "deep = ->(levels) { [levels].each { |left| deep.(left - 1) if left > 0 } }\ndeep.(3_000)\n"
    server = Server.ready(ru: "run ->(_) { [200, {}, []] }", config: config, fastrack: true, options: { MaxWorkers: 1 })
    expect(File.read("/proc/#{server.master}/smaps")[/\[stack\].*?^Rss: +(\d+)/m, 1].to_i).to be < 1_000
  end

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
