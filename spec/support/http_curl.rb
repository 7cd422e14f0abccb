# frozen_string_literal: true

require "open3"

# A request by curl, and what curl's -v tells about it.
class HttpCurl
  # @return [Hash{String => String}] header lines that curl sent
  attr_reader :request
  # @return [Hash{String => String}] header lines that came back
  attr_reader :response
  # @return [Array<Integer>] the status of each response, interim ones included
  attr_reader :statuses
  attr_reader :body

  # @param arguments [Array<String>] curl's
  def initialize(*arguments)
    @body, told, status = Open3.capture3("curl", "-sv", "--max-time", "20", *arguments, stdin_data: "", binmode: true)
    raise "curl ended with #{status.exitstatus}: #{told}" unless status.success?

    @request = fields(told, ">")
    @response = fields(told, "<")
    @statuses = told.scan(%r{^< HTTP/1\.1 (\d+)}).map { |(code)| code.to_i }
  end

  private

  def fields(told, mark)
    told.lines(chomp: true).grep(/\A#{mark} [^:]+:/).to_h { |line| line.delete_prefix("#{mark} ").strip.split(/: ?/, 2) }
  end
end
