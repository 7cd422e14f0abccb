# frozen_string_literal: true

require_relative "../text"

module Fastrack
  # Finds the name of the working directory by way of a symbolic link, such as /srv/app/current, where the environment does not tell
  # (systemd sets no PWD). The link may lead to another release at the next start.
  class LinkedDirectory
    # Name of the link to the release that Capistrano and others make.
    USUAL = "current"

    # Folders above the working directory that may be the release's, and from each of these up to the folder with the link.
    LEVELS = 2

    # Most entries of a folder with links.
    MOST = 2000

    # @param physical [String] the working directory without links
    def initialize(physical)
      @physical = physical
      @owner = File.stat(physical).uid
    rescue SystemCallError
      @owner = nil
    end

    # @param paths [Array<String>] words and values of the start that may name the directory, or files in it
    # @return [String, nil] the directory's name, as one of these has it
    def among(paths)
      paths.select { |path| path.start_with?("/") }.flat_map { |path| above(path) }.find { |path| linked?(path) }
    end

    # @return [String, nil] the directory's name by a link above it. Of several links the usual one counts, or none
    def beside
      folders = above(@physical).first(LEVELS)
      found = folders.flat_map do |folder|
        above(folder).drop(1).first(LEVELS).flat_map { |place| links(place) }.select { |link| same?(link, folder) }
                     .map { |link| "#{link}#{@physical.delete_prefix(folder)}" }
      end
      named = found.select { |path| path.split("/").include?(USUAL) }
      [named, found].find(&:one?)&.first
    end

    private

    # @return [Array<String>] the path, and all folders above it but the root
    def above(path)
      names = path.split("/").reject(&:empty?)
      names.size.downto(1).map { |count| "/#{names.first(count).join("/")}" }
    end

    def linked?(path) = path != @physical && same?(path, @physical)

    def same?(path, folder) = File.identical?(path, folder)

    # A link counts only if another user can neither have made it nor replace it.
    def links(place)
      return [] unless (File.stat(place).mode & 0o002).zero?

      Dir.each_child(place).first(MOST).map { |name| Text.utf8("#{place}/#{name}") }.select { |path| File.symlink?(path) && mine?(path) }
    rescue SystemCallError
      []
    end

    def mine?(path) = [0, Process.euid, @owner].include?(File.lstat(path).uid)
  end
end
