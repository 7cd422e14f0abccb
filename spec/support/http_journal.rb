# frozen_string_literal: true

# What an app under test has to tell the spec besides its responses: lines in a file of the server's private folder,
# so that they are there whichever worker wrote them and whatever became of it.
class HttpJournal
  FILE = "journal"

  def initialize(folder = Dir.pwd) = @path = File.join(folder, FILE)

  # Appends a line at once (O_APPEND: lines of several workers do not mix).
  def write(line) = File.write(@path, "#{line}\n", mode: "a")

  def lines
    File.readlines(@path, chomp: true)
  rescue Errno::ENOENT
    []
  end

  def count(line) = lines.count(line)
end
