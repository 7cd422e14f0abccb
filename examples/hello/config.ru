# frozen_string_literal: true

# A page that names the worker that served it, and counts that worker's requests.

page = <<~HTML
  <!DOCTYPE html>
  <html lang="en">
  <meta charset="utf-8">
  <title>Fastrack</title>
  <style>
    body { font: 18px/1.6 system-ui, sans-serif; max-width: 36em; margin: 15vh auto; padding: 0 1em; }
    td { padding-right: 2em; }
  </style>
  <h1>Fastrack serves this page</h1>
  <table>
    <tr><td>worker</td><td>process %<worker>d, of master %<master>d</td></tr>
    <tr><td>requests so far</td><td>%<requests>d by this worker</td></tr>
    <tr><td>Ruby and Rack</td><td>%<ruby>s, %<rack>s</td></tr>
  </table>
  <p>Reload the page: each worker counts for itself.</p>
  </html>
HTML

# The app is loaded once, in the master. After the fork each worker has its own copy of this number.
requests = 0

run(lambda do |env|
  next [404, { "content-type" => "text/plain" }, ["not found\n"]] unless env["PATH_INFO"] == "/"

  requests += 1
  body = format(page, worker: Process.pid, master: Process.ppid, requests: requests, ruby: RUBY_VERSION, rack: Rack.release)
  [200, { "content-type" => "text/html; charset=utf-8", "content-length" => body.bytesize.to_s }, [body]]
end)
