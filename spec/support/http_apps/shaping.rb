# frozen_string_literal: true

require "pathname"
require "rack"
require_relative "../http_journal"

module HttpApps
  # Bodies that answer yes to `respond_to?` for more than `each`, and do not mean it. The path is a body's name, and before it how
  # it is sent: `sized` with a Content-Length, `proxied` inside a Rack::BodyProxy, `response` inside a Rack::Response.
  class Shaping
    # A body of two parts, which notes in the journal what is done to it.
    class Body
      def initialize(journal, name) = (@journal, @name = journal, name)
      def each = %w[one two].each { |part| yield part }
      def close = note("close")
      def note(what) = @journal.write("#{@name} #{what}")
    end

    # What else a body has, by its name. The file `named` has the same content.
    SHAPES = {
      "plain" => proc {},
      "to-ary-nil" => proc { def to_ary = nil },
      "to-ary-enumerator" => proc { def to_ary = %w[one two].each },
      "to-ary-string" => proc { def to_ary = "onetwo" },
      "to-ary-raises" => proc { def to_ary = raise(LocalJumpError, "no block given (yield)") },
      "to-ary-exits" => proc { def to_ary = raise(NotImplementedError, "no such thing") },
      "to-ary-lies" => proc { def respond_to?(name, all = false) = name == :to_ary || super },
      "to-path-nil" => proc { def to_path = nil },
      "to-path-nowhere" => proc { def to_path = "/nowhere/at/all" },
      "to-path-nul" => proc { def to_path = "na\0med" },
      "to-path-folder" => proc { def to_path = Dir.pwd },
      "to-path-pathname" => proc { def to_path = Pathname("named") },
      "to-path-number" => proc { def to_path = 7 },
      "to-str" => proc { def to_str = raise("to_str of a body") },
      "to-hash" => proc { def to_hash = raise("to_hash of a body") },
      "call-beside-each" => proc { def call(_stream) = raise("call of a body that has each") },
      "everything" => proc do
        def to_ary = nil
        def to_path = nil
        def to_str = raise("to_str of a body")
        def call(_stream) = raise("call of a body that has each")
      end
    }.transform_values { |shape| Class.new(Body, &shape) }.freeze

    # As Grape::ServeStream::SendfileResponse is one: to_path is its body's.
    class Response < Rack::Response
      def respond_to?(name, all = false) = name == :to_path ? @body.respond_to?(:to_path, all) : super
      def to_path = @body.to_path
    end

    TYPE = { "content-type" => "text/plain" }.freeze

    def initialize = @journal = HttpJournal.new

    def call(env)
      _, *ways, name = env["PATH_INFO"].split("/")
      shape = SHAPES[name] or return [200, TYPE.dup, [Process.pid.to_s]]

      body = shape.new(@journal, env["PATH_INFO"])
      body = Rack::BodyProxy.new(body) { @journal.write("#{env["PATH_INFO"]} proxy") } if ways.include?("proxied")
      body = Response.new.tap { |response| response.body = body } if ways.include?("response")
      [200, ways.include?("sized") ? { **TYPE, "content-length" => "6" } : TYPE.dup, body]
    end
  end
end
