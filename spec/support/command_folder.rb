# frozen_string_literal: true

require "fileutils"
require "open3"
require_relative "server"

# For examples of the `fastrack` command: a folder with an app, in which it is run as its users run it.
module CommandFolder
  def self.included(group)
    group.include(Folder)
    group.before { write("config.ru", Rackups::PID) }
  end

  def path(name) = File.join(@dir, name)
  def write(name, text) = Folder.write(@dir, name, text)
  def lines(name) = File.exist?(path(name)) ? File.readlines(path(name), chomp: true) : []

  # The words that start a server in the folder.
  def in_folder(*arguments, program: [Server::COMMAND])
    ["sh", "-c", 'cd "$0" && exec "$@"', @dir, RbConfig.ruby, "-w", "-I", Server::LIB, *program, *arguments]
  end

  # One that listens, and one whose workers serve.
  def serve(*arguments, env: {}, wrapper: [], **keywords)
    Server.start(ru: "", command: in_folder(*arguments, **keywords), env: env, wrapper: wrapper)
  end

  def ready(*arguments, **keywords) = serve(*arguments, **keywords).await_ready

  # Runs the command to its end, and gives what it has written, without the folder's path, and its exit status.
  def fastrack(*arguments, env: {})
    output, status = Open3.capture2e(Server::CLEAN_ENVIRONMENT.merge(env), RbConfig.ruby, "-w", Server::COMMAND, *arguments,
                                     chdir: @dir, stdin_data: "")
    [output.gsub("#{@dir}/", ""), status.exitstatus]
  end
end
