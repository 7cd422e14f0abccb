# frozen_string_literal: true

require_relative "../http_journal"

module HttpApps
  # Answers with bodies that note in the journal what is done to them.
  class Closing
    # A failure that is no StandardError, as a missing method body (NotImplementedError) is none.
    class Grave < ScriptError; end

    # Has each and close; noted under a name.
    class Body
      def initialize(name, journal, &each)
        @name = name
        @journal = journal
        @each = each || ->(take) { %w[one two].each(&take) }
      end

      def each(&block)
        @journal.write("#{@name} each")
        @each.call(block)
      end

      def close
        @journal.write("#{@name} close")
        raise "in close" if @name == "close-fails"
      end
    end

    # By the SPEC of Rack 3, to_ary closes the body itself.
    class ArrayLike < Body
      def to_ary
        @journal.write("#{@name} to_ary")
        close
        %w[one two]
      end
    end

    # A streaming body that has a close as well.
    class Streaming < Body
      def call(stream)
        @journal.write("#{@name} call")
        stream.write("streamed")
        stream.close
      end
      undef_method :each
    end

    def initialize = @journal = HttpJournal.new

    def call(env)
      name = env["PATH_INFO"].delete_prefix("/")
      status = name[/\Astatus-(\d+)/, 1]&.to_i || (name == "bad-status" ? 5 : 200)
      [status, { "bad-header" => { "X-Bad" => "a\r\nb" }, "no-headers" => nil }.fetch(name) { { "content-type" => "text/plain" } }, body(name)]
    end

    private

    def body(name)
      case name
      # An Array is not closed; one that has a close of its own is.
      when "closable-array" then %w[one two].tap { |array| array.define_singleton_method(:close, &Body.new(name, @journal).method(:close)) }
      when "to-ary" then ArrayLike.new(name, @journal)
      when "streaming" then Streaming.new(name, @journal)
      when "fails-at-once" then Body.new(name, @journal) { raise "in each" }
      when "fails-later" then Body.new(name, @journal) { |take| take.call("first"); raise("in each") }
      when "fails-gravely" then Body.new(name, @journal) { |take| take.call("first"); raise(Grave, "in each") }
      # Until the server stops asking for more; bounded all the same.
      when "endless" then Body.new(name, @journal) { |take| 20_000.times { take.call("e" * 50_000) } }
      when "nothing" then Body.new(name, @journal) { |_| nil }
      else Body.new(name, @journal)
      end
    end
  end
end
