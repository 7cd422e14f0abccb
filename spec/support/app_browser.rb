# frozen_string_literal: true

require "cgi"
require "fileutils"
require "open3"
require "tmpdir"
require_relative "gc_mode"

# A visitor of a server: curl with a cookie jar of its own, so that what is tested is tested by a client of another make.
class AppBrowser
  DEADLINE = GcMode.patient(20)

  class Failed < StandardError; end

  Page = Struct.new(:status, :headers, :body) do
    # The value of a hidden field of a form in the page.
    def token(name = "authenticity_token") = CGI.unescapeHTML(body[/name="#{name}" value="([^"]+)"/, 1])
  end

  def initialize(server)
    @server = server
    @dir = Dir.mktmpdir("fastrack-browser")
  end

  def visit(path, *arguments)
    files = ["--cookie", file("jar"), "--cookie-jar", file("jar"), "--dump-header", file("head"), "--output", file("body")]
    _, errors, status = Open3.capture3(*%W[curl -sS --noproxy * --max-time #{DEADLINE}], *files, *arguments, @server.url(path))
    raise Failed, "#{path}: #{errors}" unless status.success?

    page
  end

  # A form as browsers send it by default.
  def submit(path, fields, *arguments)
    visit(path, *fields.flat_map { |name, value| ["--data-urlencode", "#{name}=#{value}"] }, *arguments)
  end

  # A form with a file, as multipart/form-data.
  def upload(path, fields, name, file, *arguments)
    parts = fields.flat_map { |key, value| ["--form-string", "#{key}=#{value}"] }
    visit(path, *parts, "--form", "#{name}=@#{file}", *arguments)
  end

  def write(name, content) = file(name).tap { |path| File.binwrite(path, content) }
  def close = FileUtils.remove_entry(@dir)

  private

  def file(name) = File.join(@dir, name)

  # Interim responses and redirects have heads of their own; the last one counts.
  def page
    head = File.binread(file("head")).split("\r\n\r\n").last
    status_line, *lines = head.split("\r\n")
    headers = HttpResponse::Headers.new(lines.map { |line| line.split(": ", 2) })
    body = File.exist?(file("body")) ? File.binread(file("body")) : +""
    FileUtils.rm_f([file("head"), file("body")])
    Page.new(status_line[/\A\S+ (\d+)/, 1].to_i, headers, body)
  end
end
