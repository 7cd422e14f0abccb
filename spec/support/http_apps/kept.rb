# frozen_string_literal: true

require "digest"
require_relative "../http_journal"

module HttpApps
  # For clients that keep their connections. Notes each call with its worker; what it answers depends on the path, and
  # /gate/NAME and /burn/NAME have the worker busy, asleep or counting, until the spec has written the file NAME.
  class Kept
    # An each without a length.
    Parts = Struct.new(:parts, :size) { def each = parts.times { yield "x" * size } }

    def initialize = @journal = HttpJournal.new

    def call(env)
      _, what, *arguments = env["PATH_INFO"].split("/")
      @journal.write("#{Process.pid} #{env["PATH_INFO"]}")
      [200, { "content-type" => "text/plain" }, [Process.pid.to_s]].tap do |response|
        send("answer_#{what}", response, env, *arguments) if what && respond_to?("answer_#{what}", true)
      end
    end

    private

    def answer_exit(*) = exit(3)

    # Sleeps, so that other Ruby threads run. Ends the process if the file is not empty.
    def answer_gate(_, _, name)
      sleep 0.002 until File.exist?(name)
      exit(1) if File.size?(name)
    end

    # Has Ruby's lock all the while.
    def answer_burn(_, _, name)
      Thread.handle_interrupt(Object => :never) { 1_000.times { Integer.sqrt(99_999) } until File.exist?(name) }
    end

    # Computes for so many microseconds.
    def answer_compute(_, _, micros, _name)
      now = -> { Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID, :microsecond) }
      over = now.call + micros.to_i
      100.times { |number| Integer.sqrt(number) } while now.call < over
    end

    def answer_body(response, env)
      body = env["rack.input"].read
      response[2] = ["#{Process.pid} #{body.bytesize} #{Digest::MD5.hexdigest(body)}"]
    end

    # So many bytes in one Array.
    def answer_array(response, _, size) = response[2] = ["x" * size.to_i]

    # So many bytes in a file.
    def answer_file(response, _, size)
      File.write("file", "f" * size.to_i)
      response[2] = Class.new { def to_path = File.expand_path("file") }.new
    end

    # So many parts of so many bytes, of unknown length.
    def answer_each(response, _, parts, size) = response[2] = Parts.new(parts.to_i, size.to_i)

    # A body of `size` bytes under a Content-Length of `length`.
    def answer_length(response, _, length, size, form = "array")
      response[1]["content-length"] = length
      response[2] = form == "array" ? ["x" * size.to_i] : Parts.new(size.to_i, 1)
    end

    def answer_status(response, _, code)
      response[0] = code.to_i
      response[1].clear if code == "204"
      response[2] = [] if %w[204 304].include?(code)
    end

    # A child that lives on until the file NAME is there, and its descriptors.
    def answer_fork(response, _, name)
      reader, writer = IO.pipe
      child = fork do
        writer.write(Dir.children("/proc/self/fd").filter_map { |fd| link(fd) }.join(" "))
        writer.close
        sleep 0.01 until File.exist?(name)
        exit!(0)
      end
      writer.close
      Process.detach(child)
      response[2] = [reader.read]
    end

    def link(number)
      File.readlink("/proc/self/fd/#{number}")
    rescue Errno::ENOENT
      nil
    end

    def answer_dropped(response, *) = response[2] = [ObjectSpace.each_object(Fastrack::Engine).sum(&:dropped).to_s]

    # Answers when the client has left, or the file NAME is there, and notes which.
    def answer_gone(_, env, name)
      sleep 0.005 until (gone = env["fastrack.client_gone"].call) || File.exist?(name)
      @journal.write("#{Process.pid} gone=#{gone}")
    end
  end
end
