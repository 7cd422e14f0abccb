# frozen_string_literal: true

RSpec.describe "the proxy: a shortage of descriptors", once: "the program knows no Ruby" do
  def server = @server

  before { skip "no prlimit" unless ENV.fetch("PATH").split(":").any? { |dir| File.executable?(File.join(dir, "prlimit")) } }

  def limit(pid, number) = system("prlimit", "--pid", pid.to_s, "--nofile=#{number}:", exception: true)

  it "pauses accepting, serves the clients that are there, and passes" do
    @server = Edge.start
    there = Edge.connect(server)
    expect(Edge.ask(there).first).to start_with("HTTP/1.1 200")
    proxy = Edge.proxy(server)
    taken = ProcessTable.descriptors(proxy).keys
    limit(proxy, (0..).find { |number| !taken.include?(number) })
    waiting = server.connect
    server.await_log(/proxy: cannot accept clients: .*open files/)
    expect(Edge.ask(there).first).to start_with("HTTP/1.1 200")
    limit(proxy, 1024)
    tls = OpenSSL::SSL::SSLSocket.new(waiting).tap(&:connect)
    expect(Edge.ask(tls).first).to start_with("HTTP/1.1 200")
  end

  it "keeps clients waiting, and leaves descriptors for the requests and files of those that are there" do
    large = "l" * 200_000
    @server = Edge.start(wrapper: %w[prlimit --nofile=200:200], config: "proxy_threads 1\npublic_files 'public'\n", files: { "public/large" => large })
    there = Array.new(20) { Edge.connect(server) }
    many = Array.new(250) { server.connect }
    proxy = Edge.proxy(server)
    eventually { ProcessTable.descriptors(proxy).size >= 150 }
    answers = there.flat_map { |tls| [Edge.ask(tls).first[0, 12], Edge.ask(tls, "/large").last.bytesize] }
    expect(answers.uniq).to eq(["HTTP/1.1 200", large.bytesize])
    many.each(&:close)
    expect(Edge.curl(server).last).to be_success
  end
end
