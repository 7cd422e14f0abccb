# frozen_string_literal: true

RSpec.describe "C5 what the app returns" do
  before(:context) do
    serve(<<~'RUBY')
      require "rack"
      # Headers that are a Hash, and say in `each` what they are.
      class Own < Hash
        def each
          yield "x-own", "one"
          super { |name, value| yield name, value.upcase }
        end
      end
      class Emptying
        def initialize(code) = @code = code
        attr_accessor :result

        def to_i
          result.clear
          GC.start
          @code
        end
      end
      run(lambda do |env|
        case env["PATH_INFO"]
        when "/own" then [200, Own.new.update("x-given" => "two"), ["own"]]
        when "/singleton" then [200, { "x-given" => "two" }.tap { |one| one.define_singleton_method(:each) { |&block| block.call("x-own", "one") } }, ["own"]]
        when "/plain" then [200, Class.new(Hash).new.update("x-given" => "two"), ["plain"]]
        when "/emptied" then Emptying.new(201).then { |status| status.result = [status, { "x-given" => "two" }, %w[emp tied]] }
        # Hanami's.
        when "/response" then Class.new(Rack::Response) { alias_method :to_ary, :to_a }.new("response")
        when "/hints"
          env["rack.early_hints"].call(Own.new.update("link" => "</a>"))
          [200, {}, ["hints"]]
        else [200, {}, [Process.pid.to_s]]
        end
      end)
    RUBY
  end

  { "/own" => ["one", "TWO"], "/singleton" => ["one", nil], "/plain" => [nil, "two"] }.each do |path, values|
    it "C5 headers that are a Hash with an each of its own, or without one, go by it: #{path}" do
      response = server.get(path)
      expect([response.status, response.headers.to_h.values_at("x-own", "x-given")]).to eq([200, values])
    end
  end

  it "C5 may be an object with to_ary" do
    response = server.get("/response")
    expect([response.status, response.body]).to eq([200, "response"])
  end

  it "C5 the early hints of such a Hash go by its each, too" do
    hinting = Server.start(ru: File.read(server.file("config.ru")), options: { MaxWorkers: 1, EarlyHints: true })
    expect(hinting.raw(message("GET /hints HTTP/1.1", "Host: a", "Connection: close"))).to match(/103 Early Hints\r\nx-own: one\r\nlink: <\/A>\r\n/i)
  end

  it "C5 a status whose to_i empties the result leaves headers and body as they were returned" do
    response = server.get("/emptied")
    expect([response.status, response.headers["x-given"], response.body]).to eq([201, "two", "emptied"])
    expect_worker_alive
  end
end
