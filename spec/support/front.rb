# frozen_string_literal: true

# The specs of the wire run a second time through the server's own proxy, with FASTRACK_FRONT=http1: a promise that holds without the proxy
# holds with it. docs/proxy.md has a table of the differences, by the same words.
module Front
  PROXIED = ENV.fetch("FASTRACK_FRONT", "") == "http1"

  # Examples that the second run leaves out: for each reason the files, with a pattern of the examples' names.
  DIFFERENT = {
    "hijack: the client's connection is the proxy's" => {
      "rack/hijack" => //, "connections/stream_body_hijack" => //, "rack/lint" => /hijacks/, "rack/kept_connection_table" => /hijacked/,
      "rack/mn_threads" => //, "http/cut_response" => /hijack/
    },
    "103 Early Hints" => {
      "rack/early_hints" => //, "rack/own_request" => /hints/, "rack/triplet" => /early hints/, "rack/kept_connection_table" => /early hints/,
      "rack/connection_fields" => /103|early hints/
    },
    "the end of a connection: a worker's does not end its client's" => {
      "rack/connection_fields" => //, "rack/error_page_connection" => //, "rack/kept_connection_table" => /pipelined|HTTP.1\.0/,
      "rack/close" => /raises/, "rack/file" => /shrinks|no file open/, "rack/error_page" => /bad response/, "http/response_end" => //, "http/cut_response" => //
    },
    "names of fields are in lower case, and Connection is hyper's" => {
      "http/response_head" => //, "http/rules" => /version|B-framing length:|expectation-other|host-missing|length-repeated|chunk/, "http/chunked_response" => /no-body|ChunkedTransfer/,
      "rack/env_shapes" => //
    },
    "X-Request-Start is the proxy's" => { "http/max_queue_time" => //, "http/upload_queue_time" => //, "rack/env" => /absolute target/, "rack/server_name" => /absolute target/ },
    "bytes behind a last request are discarded" => { "http/framing" => /past-length/ },
    "a worker's own sockets, threads, memory and system calls" => {
      "http/syscalls" => //, "http/wakeup" => //, "http/descriptors" => //, "http/memory" => //, "http/crowd" => //, "http/limits" => /431|larger ones|as long as the head/,
      "http/expect" => /app's own 100/, "http/pace" => //, "http/truncated_body" => /408/, "http/half_response" => //, "rack/forking_app" => //,
      "rack/closing_app" => //, "rack/garbage_collection" => //, "streams/linger" => //, "streams/time_limit" => //, "streams/client_gone" => /half of a request/
    }
  }.freeze

  module_function

  # Options of a server. Compress makes a server start its proxy.
  def options(given) = PROXIED ? { "Compress" => true, **given } : given

  # @param metadata [Hash] of an example
  # @return [Symbol, nil] why the second run leaves it out
  def difference(metadata)
    file = metadata[:file_path].delete_prefix("./").delete_prefix("spec/").delete_suffix("_spec.rb")
    DIFFERENT.find { |_, files| files.key?(file) && metadata[:full_description].match?(files[file]) }&.first
  end
end
