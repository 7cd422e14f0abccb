# frozen_string_literal: true

require_relative "translator"

# The specs of the wire run a second time through the server's own proxy, with FASTRACK_FRONT=http1: a promise that holds without the proxy
# holds with it. docs/proxy.md has a table of the differences, by the same words. With FASTRACK_FRONT=h2 they run by HTTP/2 with TLS, too: their
# clients' HTTP/1.1 is translated.
module Front
  PROXIED = ENV.key?("FASTRACK_FRONT")
  H2 = ENV["FASTRACK_FRONT"] == "h2"

  # How a response ends that is cut. The translator of HTTP/2 resets no client.
  CUT = H2 ? :closed : :reset

  # Examples that the second run leaves out: for each reason the files, with a pattern of the examples' names.
  DIFFERENT = {
    "hijack: the client's connection is the proxy's" => {
      "connections/stream_body_hijack" => //,
      "http/cut_response" => %r{/hijack},
      "rack/garbage_collection" => /gives every kind of response/,
      "rack/hijack" => /full: (?!a body that goes on)|partial: (?:rack|what raises|with 101)|takes too long/,
      "rack/kept_connection_table" => /hijacked/,
      "rack/lint" => /hijacks/
    },
    "103 Early Hints do not pass" => {
      "rack/connection_fields" => /103|early hints/,
      "rack/early_hints" => /\bsends (?!nothing to a client of HTTP.1\.0)|sends it at once/,
      "rack/kept_connection_table" => /early hints/,
      "rack/own_request" => /hints: (?:acts|can be passed)/,
      "rack/triplet" => /early hints/
    },
    "Connection: close of the app, and errors after which a worker closes, end the connection to the worker" => {
      "connections/recycling" => /told so by the answer/,
      "http/max_queue_time" => /by its own clock/,
      "http/response_end" => /comes before what the app has after/,
      "rack/closing_app" => /is not taken for one/,
      "rack/connection_fields" => /ends it after|name the Upgrade/,
      "rack/error_page_connection" => /the server's own page/,
      "rack/forking_app" => /Process\.daemon/,
      "rack/kept_connection_table" => /pipelined requests with (?:an exception in|a header|a status)/,
      "streams/linger" => /ends them after Linger/
    },
    "names of fields are in lower case" => { "http/response_head" => /app headers as|Date and Server win|to itself/ },
    "the framing is the proxy's" => { "http/response_end" => /Transfer-Encoding is "(?:gzip|chunked, gzip|deflate)"|none on HEAD and 304/ },
    "a client's fields about its way are the proxy's to set" => {
      "http/max_queue_time" => /router's clock|by the next request/,
      "http/upload_queue_time" => /on a new connection and|the time before the head|pipelined|X-Request-Start/,
      "rack/env_shapes" => //
    },
    "bytes behind a last request are discarded" => {
      "connections/stream_body" => /bytes beyond the body/,
      "http/framing" => /past-length (?:.*: 400|refuses)/
    },
    "a body may have fewer trailers" => { "http/rules" => /limit-chunks/ },
    "the proxy answers broken chunks, and asks for a body once" => {
      "connections/stream_body" => /bad chunks|goes on after that/,
      "http/expect" => /after the server's own|but not to HTTP.1\.0/
    },
    "a GET whose worker dies goes to another" => { "rack/closing_app" => %r{/descriptors} },
    "the proxy ends with its master, and closes kept connections at USR2" => {
      "connections/other_listeners" => //,
      "connections/recycling" => /new master/,
      "connections/stream_body" => /TERM waits no longer/,
      "http/crowd" => /master is killed/
    },
    "idle clients make no room for new ones" => {
      "connections/faults" => /without descriptors/,
      "connections/shortage" => /accept4/,
      "http/descriptors" => //
    },
    "a worker's own sockets, queue, files and memory" => {
      "connections/client_gone" => /in the queue/,
      "connections/faults" => /leave nothing behind|leaks no descriptor/,
      "connections/hand_over" => //,
      "connections/out_of_memory" => //,
      "connections/shortage" => /generation 0/,
      "connections/small_parts" => /in one packet/,
      "connections/spooled_response" => /without a name until|end for the app/,
      "http/crowd" => //,
      "http/cut_response" => /sends the rest of it/,
      "http/memory" => //,
      "http/syscalls" => //,
      "http/wakeup" => //,
      "rack/file" => /leaves no file open/,
      "rack/hijack" => /leaves no socket open/
    }
  }.freeze

  # What the run by HTTP/2 leaves out besides.
  DIFFERENT_BY_HTTP2 = {
    "the translator answers itself what is wrong in HTTP/1.1" => {
      "http/limits" => //,
      "http/refusal" => /says in a line/,
      "http/rules" => //,
      "http/truncated_body" => /408/
    },
    "the translator has connections, fields and a patience of its own" => {
      "http/chunked_response" => /refusal of a HEAD/,
      "http/cut_response" => /SIGKILL ends the worker in the middle|behind nginx/,
      "http/early_refusal" => /50 MB first|StreamBody/,
      "http/pace" => /takes nothing at all/,
      "http/response_head" => /yields pairs/,
      "http/upload_queue_time" => //,
      "rack/close" => /each raises/,
      "rack/connection_fields" => /what Connection names/,
      "rack/error_page" => /for a bad response/,
      "rack/kept_connection_table" => /HTTP.1\.0 gets a live/,
      "rack/triplet" => /go by it/,
      "streams/slots" => /waited for by a server that stops/,
      "streams/time_limit" => /StreamTimeout, which ends|cuts streams/
    },
    "the translator knows no extended CONNECT" => {
      "rack/kept_connection_table" => /switched to another|offers another protocol/,
      "rack/protocol" => //,
      "streams/linger" => //
    },
    "HTTP/2 has no reasons, and 100 Continue does not pass" => {
      "http/expect" => /sends 100 Continue|in a streamed body/,
      "http/response_head" => /reason of each status/,
      "rack/kept_connection_table" => /wait for 100/
    },
    "the protocol is HTTP/2, the scheme https, and the client the translator" => {
      "rack/env" => /request line|empty QUERY_STRING|rack\. variables|path and host of an absolute|head of many fields|any method|name and port|address and port|PathInfo/,
      "rack/env_strings" => /POST, Host/,
      "rack/reserved_names" => /beside the real ones|says the version/,
      "rack/server_name" => //
    },
    "the certificate is in the folder for temporary files" => { "rack/temporary_folder" => /everybody may write|may be missing/ }
  }.freeze

  # What stays with the workers.
  UNIX = /(?:over|on) a unix socket/.freeze

  module_function

  # Options of a server. Compress makes a server start its proxy.
  def options(given)
    return given unless PROXIED
    return { "Compress" => true, **given } unless H2 && given["Port"] == 0 && !given.key?("Path") && !given.key?("Listen")

    { "Compress" => true, **given.except("Host", "Port"), "Listen" => Translator.place }
  end

  # @param metadata [Hash] of an example
  # @return [String, nil] why the second run leaves it out
  def difference(metadata)
    return "unix sockets stay with the workers" if metadata[:full_description].match?(UNIX)
    return "figures of a worker alone" if metadata[:alone]

    patterns(metadata[:file_path]).find { |_, pattern| metadata[:full_description].match?(pattern) }&.first
  end

  # Patterns that match no example leave nothing out.
  #
  # @param examples [Array<RSpec::Core::Example>] all of some files
  # @return [Array<String>]
  def stale(examples)
    examples.group_by(&:file_path).flat_map do |path, all|
      names = all.map(&:full_description)
      patterns(path).map(&:last).reject { |pattern| names.any?(pattern) }.map { |pattern| "#{path}: #{pattern.inspect} matches no example" }
    end
  end

  # @return [Array<Array(String, Regexp)>] reasons and patterns of a file
  def patterns(path)
    file = path.delete_prefix("./").delete_prefix("spec/").delete_suffix("_spec.rb")
    tables = H2 ? [*DIFFERENT, *DIFFERENT_BY_HTTP2] : DIFFERENT
    tables.filter_map { |reason, files| [reason, files[file]] if files.key?(file) }
  end
end
