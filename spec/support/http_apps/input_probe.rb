# frozen_string_literal: true

require "digest"
require "tempfile"

module HttpApps
  # Does with rack.input what the path says, and answers with what came of it.
  class InputProbe
    def call(env) = [200, { "content-type" => "text/plain" }, [answer(env["PATH_INFO"], env["rack.input"], env).inspect]]

    private

    def answer(path, input, env)
      case path
      when "/kind" then [input.class.name, input.external_encoding&.name, input.read(1)&.encoding&.name, input.respond_to?(:size) && input.size]
      when "/digest" then [env["CONTENT_LENGTH"], env["HTTP_TRANSFER_ENCODING"], Digest::SHA256.hexdigest(input.read)]
      when "/twice" then [input.read, input.rewind, input.read].then { |first, _, second| [first.bytesize, first == second] }
      when "/pieces" then (+"kept by nobody").then { |buffer| [input.read(3), input.read(0), input.read(2, buffer), buffer, input.read] }
      when "/lines" then [input.gets, [].tap { |rest| input.each { |line| rest << line } }]
      when "/end" then input.read && [input.read, input.read(1), input.gets]
      # What is known of the file behind the input, were it found by its name.
      when "/file" then File.stat("/proc/self/fd/#{input.fileno}").then { |stat| [input.class.name, input.path, stat.nlink, stat.size] }
      when "/spoil" then spoil(input)
      when "/open-files" then open_files
      else input.read
      end
    end

    # Uses the input up, as an app may that thinks it is its own.
    def spoil(input)
      input.read
      input.binmode if input.respond_to?(:binmode)
      input.close
      "closed"
    end

    # The deleted files that this process has open.
    def open_files
      Dir.children("/proc/self/fd").filter_map do |number|
        File.readlink("/proc/self/fd/#{number}")
      rescue Errno::ENOENT
        nil
      end.grep(/\(deleted\)\z/).sort
    end
  end
end
