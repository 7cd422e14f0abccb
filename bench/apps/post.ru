# frozen_string_literal: true

# Reads the whole request body and answers with its length in bytes.
run(lambda do |env|
  length = env["rack.input"].read.bytesize.to_s
  [200, { "content-type" => "text/plain", "content-length" => length.bytesize.to_s }, [length]]
end)
