# frozen_string_literal: true

# What an app can do in a request, a line each: what its client sees. A second later the service is what it was, whatever that
# is. Ends of processes, callbacks, hijacking, forks, rack.input, errors, bad responses and what runs out (connections/out_of_memory_spec.rb,
# connections/faults_spec.rb) have files of their own that go deeper.
RSpec.describe "A hostile app" do
  def self.answer(triplet) = Hostile.answer(triplet)

  text = '{ "content-type" => "text/plain" }'

  acts = {
    # --- its own process
    "kills its process" => ["Process.kill(:KILL, Process.pid); sleep", :nothing],
    "stops its process" => ["Process.kill(:STOP, Process.pid)", :nothing],
    "has its process end by TERM" => ["Process.kill(:TERM, Process.pid)", 200],
    "sends its process what is the master's" => ["%w[HUP INT USR2 TTIN TTOU WINCH CHLD URG USR1].each { |name| Process.kill(name, Process.pid) }", 200],
    "sends its process what nobody handles" => ["Process.kill(:PROF, Process.pid); sleep", :nothing],
    "sends its process what Ruby raises" => ["Process.kill(:ALRM, Process.pid); sleep 1", 500],
    "kills all other workers" => ["`pgrep -P \#{Process.ppid}`.split.map(&:to_i).each { |pid| Process.kill(:KILL, pid) unless pid == Process.pid }", 200],
    "has the master reload" => ["Process.kill(:HUP, Process.ppid)", 200],
    "calls exit in a thread" => ["Thread.new { exit(3) }.join", 500],
    "kills its thread" => ["Thread.current.kill; sleep", 500],
    "kills the main thread" => ["Thread.main.kill; sleep", 500],
    "breaks out of what called it" => ["proc { break }.call", 500],
    "takes TERM over" => ["trap('TERM') {}; Process.kill(:TERM, Process.pid); exit!", :nothing],
    "ignores all signals" => ["Signal.list.each_key { |name| trap(name, 'IGNORE') rescue nil }; exit!", :nothing],
    "registers an exit hook that raises, and ends" => ["at_exit { raise 'at the end' }; Process.kill(:TERM, Process.pid)", 200],
    "registers an exit hook that hangs, and ends" => ["at_exit { sleep }; Process.kill(:TERM, Process.pid)", 200],

    # --- time, stack and memory
    "sleeps for ever" => ["env['fastrack.timeout'].call(0.3); sleep", 504],
    "loops for ever" => ["env['fastrack.timeout'].call(0.3); loop {}", 504],
    "rescues everything, for ever" => ["env['fastrack.timeout'].call(0.3); begin; sleep; rescue Exception; retry; ensure; loop {}; end", 504],
    "asks for an odd time limit" => ["[-1, Float::NAN, nil, 'x'].each { |time| env['fastrack.timeout'].call(time) rescue nil }", 200],
    "overflows its stack in an ensure" => ["begin; DEEP.call(0); ensure; DEEP.call(0); end", 500],
    "wants more memory than there is" => ["'x' * (1 << 45)", 500],
    "wants an array that cannot be" => ["Array.new(1 << 61)", 500],
    "raises what is no error of the app's" => ["raise Interrupt", 500],
    "raises what cannot be described" => ["raise Class.new(StandardError) { def message = raise('no'); def full_message(**) = raise('no'); def inspect = raise('no') }", 500],
    "raises an endless message" => ["raise 'x' * 5_000_000", 500],
    "never collects garbage" => ["GC.disable; 10_000.times { 'x' * 100 }; GC.enable", 200],

    # --- processes
    "leaves a child" => ["Process.detach(fork { sleep 0.3; exit!(0) })", 200],
    "leaves a child that nobody waits for, and ends" => ["spawn('sleep 0.3'); Process.kill(:TERM, Process.pid)", 200],
    "leaves a grandchild" => ["system('sleep 0.3 & exec true')", 200],
    "waits for all children" => ["spawn('true'); Process.waitall", 200],
    "becomes a daemon" => ["Process.daemon(true, true); sleep 0.2; exit!(0)", :nothing],
    "leads a session of its own" => ["begin; Process.setsid; rescue Errno::EPERM; nil; end; Process.kill(:TERM, Process.pid)", 200],
    "forks, and both go on" => ["$child = fork; Process.detach($child) if $child", 200],
    "forks in a thread, and the child goes on" => ["Thread.new { fork { sleep 0.2; throw :out } }.value.then { |pid| Process.wait(pid) }", 200],
    "has a child that signals its parents" => ["Process.wait(fork { Process.kill(:HUP, Process.ppid); exit!(0) })", 200],
    "runs a command that writes without an end" => ["IO.popen('yes', &:gets)", 200],

    # --- descriptors and files
    "closes stdin, stdout and stderr" => ["[$stdin, $stdout, $stderr].each(&:close); Process.kill(:TERM, Process.pid)", 200],
    "closes all of Ruby's files and sockets" => ["ObjectSpace.each_object(IO) { |one| one.close unless one.closed? rescue nil }", 200],
    "closes all descriptors" => ["(3..255).each { |number| IO.for_fd(number).close rescue nil }", :nothing],
    "opens files until there are no more" => [<<~RUBY.tr("\n", ";"), 200],
      Process.setrlimit(:NOFILE, Dir.children("/proc/self/fd").size + 20)
      files = []
      begin
        loop { files << File.open(File::NULL) }
      rescue Errno::EMFILE
        LATER.call { files.each(&:close) }
      end
    RUBY
    "leaves no descriptor for what comes" => ["Process.setrlimit(:NOFILE, 3); LATER.call { Process.kill(:TERM, Process.pid) }", 200],
    "goes to a folder that is gone" => ["Dir.mkdir('gone'); Dir.chdir('gone'); Dir.rmdir('../gone')", 200],
    "makes its files unreadable" => ["File.umask(0o777)", 200], "empties ENV" => ["ENV.clear", 200],
    "calls itself otherwise" => ["$0 = 'x' * 5000; Process.setproctitle('nginx: worker')", 200],

    # --- Ruby itself
    "takes UTF-16 for its encoding" => ["Encoding.default_external = Encoding::UTF_16LE; Encoding.default_internal = Encoding::UTF_16BE", 200],
    "takes a dummy for its encoding" => ["Encoding.default_external = Encoding::UTF_7", 200],
    "changes Ruby's separators" => ["$VERBOSE = nil; $/ = 'x'; $, = 'y'; $; = 'z'; $\\ = 'w'", 200],
    "replaces $stdout and $stderr" => ["$stdout = $stderr = Object.new.tap { |it| def it.write(*) = raise('no') }", 200],
    "has exceptions of threads end the process" => ["Thread.abort_on_exception = true; Thread.report_on_exception = false; LATER.call { raise 'late' }", 200, :ends],
    "raises in the main thread, from another one" => ["Thread.new { Thread.main.raise('late') }.join; sleep", 500],
    "raises in the main thread when the request is over" => ["main = Thread.main; LATER.call { main.raise('late') }", 200, :ends],
    "starts many threads" => ["300.times { Thread.new { sleep 0.2 } }", 200],
    "traces everything" => ["TracePoint.new(:call, :return, :c_call, :c_return) {}.tap(&:enable); exit!", :nothing],
    "traces everything and raises in there" => ["TracePoint.new(:c_call) { |at| raise 'traced' if at.method_id == :puts }.enable { puts }", 500],
    "has each allocation collect garbage" => ["GC.stress = true; LATER.call { GC.stress = false }", 200],
    "compacts the heap" => ["GC.compact if GC.respond_to?(:compact)", 200],
    "keeps its env in a thread" => ["LATER.call { env.each_value(&:to_s); env['rack.input'].read; env.clear }", 200],
    "calls the server from a thread when the request is over" => ["later = env['fastrack.client_gone']; LATER.call { later.call }", 200],
    "asks for its own server" => ["Net::HTTP.get(URI(\"http://\#{env['SERVER_NAME']}:\#{env['SERVER_PORT']}/\"))", 200],

    # --- its env
    "empties its env" => ["env.clear", 200], "freezes its env" => ["env.each_value(&:freeze); env.freeze", 200],
    "changes all strings of its env" => ["env.each_value { |value| value << 'x' if value.is_a?(String) && !value.frozen? }", 200],
    "forces other encodings on its env" => ["env.each_value { |value| value.force_encoding('UTF-16LE') if value.is_a?(String) && !value.frozen? }", 200],
    "makes its env another Hash" => ["env.compare_by_identity; env.default_proc = proc { raise }; #{answer("[200, {}, []]")}", 200],
    "gives its env methods that raise" => ["def env.[](*) = raise('no'); def env.delete(*) = raise('no'); def env.each(*) = raise('no'); #{answer("[200, {}, []]")}", 200],
    "puts what is no String into its env" => ["env[nil] = 1; env['rack.input'] = nil; env['rack.errors'] = Object.new", 200],
    "closes its input and error streams" => ["env['rack.input'].close; env['rack.errors'].close rescue nil", 200],
    "puts odd things into its callbacks" => ["env['rack.after_reply'] = [nil, 1, -> { raise 'late' }, ->(_) {}]", 200],
    "puts a number for its callbacks" => ["env['rack.after_reply'] = 1", 200],
    "exits in a callback" => ["(env['rack.after_reply'] ||= []) << -> { exit }", 200],
    "ends its process in a callback" => ["(env['rack.after_reply'] ||= []) << -> { exit! }", 200],

    # --- what it gives back
    "gives an interim status, and no other" => [answer("[100, {}, []]"), 500],
    "gives headers whose each raises" => [answer("[200, Class.new { def each = raise('no') }.new, []]"), 500],
    "gives header names that are none" => [answer("[200, { 'a b' => '1', '' => '2', \"a\\r\\nb\" => '3' }, ['x']]"), 500],
    "gives header values that are no Strings" => [answer("[200, { 'a' => nil, 'b' => 5, 'c' => Object.new }, ['x']]"), 200],
    "gives headers without an end" => [answer("[200, { 'a' => 'x' * 10_000_000 }, ['x']]"), 200],
    "gives a body that is a BasicObject" => [answer("[200, #{text}, BasicObject.new]"), 500],
    "gives parts that are no Strings" => [answer("[200, #{text}, [nil, 1, :a]]"), 200],
    "gives a body that raises in between" => [answer("[200, #{text}.merge('content-length' => '10'), Enumerator.new { |parts| parts << 'x'; raise 'no' }]"), :cut],
    # The first part may leave before the end.
    "gives a body that ends its process" => [answer("[200, #{text}.merge('content-length' => '10'), Enumerator.new { |parts| parts << 'x'; exit! }]"), %i[nothing cut]],
    "gives a body that is shorter than it says" => [answer("[200, #{text}.merge('content-length' => '100'), ['x']]"), :cut],
    "gives a body that is longer than it says" => [answer("[200, #{text}.merge('content-length' => '1'), ['xyz']]"), 200],
    "gives a folder for a file" => [answer("[200, #{text}, Class.new { def to_path = '/'; def each = raise('no') }.new]"), 500],
    "gives a body where none may be" => [answer("[204, {}, ['x' * 100_000]]"), 204],
    "takes its connection and forgets it until its process ends" => ["env['rack.hijack'].call; LATER.call { Process.kill(:TERM, Process.pid) }", :nothing],
    "takes its connection and raises" => ["env['rack.hijack'].call.close; raise 'no'", :nothing]
  }

  before(:context) { serve_hostile(acts.values.map(&:first)) }

  acts.each_with_index do |(what, (_, seen, late)), index|
    it "#{what}: its client sees #{[*seen].join(" or ")}, and nobody else anything" do
      before = server.workers
      expect([*seen]).to include(view("/#{index}"))
      # A request that is arriving at the worker would end with it.
      eventually { (before - server.workers).any? } if late == :ends
      expect_order
    end
  end
end
