# frozen_string_literal: true

# Hello; 16 MB for /16m, by an each of 64 KiB at a time whose length nobody knows.
part = ("x" * 65_536).freeze
parts = Enumerator.new { |body| 256.times { body << part } }

run(->(env) { [200, { "content-type" => "text/plain" }, env["PATH_INFO"] == "/16m" ? parts : ["Hello world\n"]] })
