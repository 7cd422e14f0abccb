# frozen_string_literal: true

# Answers with the request's body. Writes what it has understood of a request to the file SEEN: a proxy may swallow the answer.
seen = ENV["SEEN"] && File.open(ENV["SEEN"], "ab")
run(lambda do |env|
  body = env["rack.input"] ? env["rack.input"].read.to_s : ""
  seen&.syswrite("#{[*env.values_at("REQUEST_METHOD", "PATH_INFO", "QUERY_STRING", "HTTP_HOST"), body].map { |text| text.to_s.b.dump }.join(" ")}\n")
  [200, { "content-type" => "text/plain", "content-length" => body.bytesize.to_s }, [body]]
end)
