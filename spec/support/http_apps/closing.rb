# frozen_string_literal: true

require_relative "../http_journal"

module HttpApps
  # Answers with bodies that note in the journal what is done to them.
  class Closing
    # A failure that is no StandardError, as a missing method body (NotImplementedError) is none.
    class Grave < ScriptError; end

    # Has each and close; noted under a name.
    class Body
      def initialize(name, journal, failure: nil, &each)
        @name = name
        @journal = journal
        @failure = failure
        @each = each || ->(take) { %w[one two].each(&take) }
      end

      def each(&block)
        @journal.write("#{@name} each")
        @each.call(block)
      end

      def close
        @journal.write("#{@name} close")
        raise @failure, "in close" if @failure
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

    # An Array is not closed; one that has a close of its own is.
    class ClosableArray < Array
      attr_writer :journal

      def close
        @journal.write("closable-array close")
      end
    end

    # What can go wrong, by the name that is in the path.
    FAILURES = { "standard" => RuntimeError, "grave" => Grave, "exit" => SystemExit }.freeze

    def initialize
      @journal = HttpJournal.new
    end

    def call(env)
      name = env["PATH_INFO"].delete_prefix("/")
      [status(name), headers(name), body(name)]
    end

    private

    def status(name)
      name[/\Astatus-(\d+)/, 1]&.to_i || (name == "bad-status" ? 5 : 200)
    end

    def headers(name)
      case name
      when "bad-header" then { "X-Bad" => "a\r\nb" }
      when "no-headers" then nil
      else { "content-type" => "text/plain" }
      end
    end

    def body(name)
      case name
      when "closable-array" then ClosableArray.new(%w[one two]).tap { |array| array.journal = @journal }
      when "to-ary" then ArrayLike.new(name, @journal)
      when "streaming" then Streaming.new(name, @journal)
      when "fails-at-once", "fails-later", "fails-gravely" then failing(name)
      when "close-fails" then Body.new(name, @journal, failure: RuntimeError)
      when "endless" then endless(name)
      when "nothing" then Body.new(name, @journal) { |_| nil }
      else Body.new(name, @journal)
      end
    end

    def failing(name)
      Body.new(name, @journal) do |take|
        take.call("first") unless name == "fails-at-once"
        raise name == "fails-gravely" ? Grave : RuntimeError, "in each"
      end
    end

    # Until the server stops asking for more; bounded all the same.
    def endless(name)
      Body.new(name, @journal) { |take| 20_000.times { take.call("e" * 50_000) } }
    end
  end
end
