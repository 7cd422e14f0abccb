# frozen_string_literal: true

require "digest"
require "tempfile"

module HttpApps
  # Does with rack.input what the path says, and answers with what came of it.
  class InputProbe
    def call(env)
      [200, { "content-type" => "text/plain" }, [answer(env["PATH_INFO"], env["rack.input"], env).inspect]]
    end

    private

    def answer(path, input, env)
      case path
      when "/kind" then kind(input)
      when "/digest" then [env["CONTENT_LENGTH"], env["HTTP_TRANSFER_ENCODING"], Digest::SHA256.hexdigest(input.read)]
      when "/twice" then rewound(input)
      when "/pieces" then pieces(input)
      when "/lines" then lines(input)
      when "/end" then at_end(input)
      when "/file" then file(input)
      when "/spoil" then spoil(input)
      when "/open-files" then open_files
      else input.read
      end
    end

    def kind(input)
      [input.class.name, input.external_encoding&.name, input.read(1)&.encoding&.name, input.respond_to?(:size) && input.size]
    end

    def rewound(input)
      first = input.read
      input.rewind
      [first.bytesize, input.read == first]
    end

    def pieces(input)
      buffer = +"kept by nobody"
      [input.read(3), input.read(0), input.read(2, buffer), buffer, input.read]
    end

    def lines(input)
      first = input.gets
      rest = []
      input.each { |line| rest << line }
      [first, rest]
    end

    def at_end(input)
      input.read
      [input.read, input.read(1), input.gets]
    end

    # What is known of the file behind the input, were it found by its name.
    def file(input)
      stat = File.stat("/proc/self/fd/#{input.fileno}")
      [input.class.name, input.path, stat.nlink, stat.size]
    end

    # Uses the input up, as an app may that thinks it is its own.
    def spoil(input)
      input.read
      input.binmode if input.respond_to?(:binmode)
      input.close
      "closed"
    end

    # The deleted files that this process has open, once garbage has been collected.
    def open_files
      Dir.children("/proc/self/fd").filter_map do |number|
        File.readlink("/proc/self/fd/#{number}")
      rescue Errno::ENOENT
        nil
      end.grep(/\(deleted\)\z/).sort
    end
  end
end
