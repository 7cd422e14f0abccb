# frozen_string_literal: true

require "stringio"

module Bench
  # A config.ru of bench/apps, run here, outside any server: what it answers is what every server
  # must answer.
  class App
    # @return [String] path of the config.ru
    attr_reader :path

    def initialize(path)
      @path = path
    end

    # @return [String] the body that `request` must get
    def body(request)
      parts = +""
      answer(request).last.each { |part| parts << part }
      parts
    end

    # @return [Boolean] whether it needs a framework, and with it the lane's Ruby
    def framework? = false

    # @return [Array<String>] what it needs besides Rack: features to require
    def features = []

    # @param answered [String] the body that a server has sent
    # @return [Boolean] whether it is what `request` must get
    def right?(request, answered) = answered == body(request)

    private

    def answer(request)
      loaded.call(request.env)
    end

    # A config.ru's words. The apps of the benchmark use only `run`.
    class Builder
      attr_reader :app

      def run(app)
        @app = app
      end
    end
    private_constant :Builder

    def loaded
      @loaded ||= Builder.new.tap { |builder| builder.instance_eval(File.read(path), path) }.app
    end
  end
end
