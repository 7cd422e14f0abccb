# frozen_string_literal: true

require_relative "../text"

module Fastrack
  # What generation 0 asks the app for before the first fork, by one use of the word `warm_up`. Without paths and block: the usual pages.
  WarmUpPages = Struct.new(:paths, :block, :rounds, :headers, :host, :https, keyword_init: true) do
    # @!parse
    #   Pages of a warm-up.
    #   @return [Array<String>, nil] paths
    #   @return [#call, nil] block, which gets a WarmUp::Client
    #   @return [Integer, nil] rounds; nil: as many as make the app faster
    #   @return [Hash{String => String}] headers
    #   @return [String, nil] host
    #   @return [Boolean, nil] https
  end

  class << WarmUpPages
    PATH = %r{\A/[\x21-\x7e]*\z}.freeze
    HOST = /\A[\w.-]+(?::\d{1,5})?\z|\A\[[\h:.]+\](?::\d{1,5})?\z/.freeze
    FIELD = /\A[\w!#$%&'*+.^`|~-]+\z/.freeze
    MOST_ROUNDS = 10_000
    private_constant :PATH, :HOST, :FIELD, :MOST_ROUNDS

    # Makes the value of the option WarmUp.
    #
    # @param value [Array, String, Boolean] a String may have several paths, with commas
    # @return [Array<WarmUpPages>, nil] frozen; nil: no warm-up
    # @raise [ArgumentError]
    def list(value)
      case value
      when true, Option::Types::TRUE_WORDS then [new(headers: {})].freeze
      when false, Option::Types::FALSE_WORDS then nil
      when String then [of(value.split(","))].freeze
      else Array(value).map { |one| one.is_a?(WarmUpPages) ? one : of([one]) }.freeze
      end
    end

    # @param paths [Array<String>]
    # @param settings [Hash{Symbol => Object}]
    # @param block [#call, nil]
    # @raise [ArgumentError]
    def of(paths, settings = {}, block = nil)
      other = settings.keys - %i[rounds headers host https]
      raise ArgumentError, "has no setting #{other.first}" if other.any?
      raise ArgumentError, "takes paths or a block, not both" if block && paths.any?

      new(paths: block || paths.empty? ? nil : paths.map { |path| path(path) }.freeze, block: block,
          rounds: settings[:rounds]&.then { |rounds| Option::Types.integer(rounds, 1..MOST_ROUNDS) },
          headers: fields(settings.fetch(:headers, {})), host: host(settings[:host]), https: settings[:https])
    end

    private

    def path(value)
      text = Text.utf8(value.to_s.strip)
      PATH.match?(text) ? text.dup.freeze : raise(ArgumentError, "must be paths, such as / or /posts?page=2")
    end

    def host(value)
      value.nil? || HOST.match?(value.to_s) ? value&.to_s : raise(ArgumentError, "must have a host such as example.com")
    end

    def fields(value)
      pairs = value.to_h.map { |name, text| [name.to_s, text.to_s] }
      return pairs.to_h.freeze if pairs.all? { |name, text| FIELD.match?(name) && !text.match?(/[\0\r\n]/) }

      raise ArgumentError, "must have headers such as \"Accept-Language\" => \"de\""
    end
  end
end
