# frozen_string_literal: true

module Bench
  # A config.ru of bench/apps.
  class App
    DIR = File.expand_path("../apps", __dir__)
    private_constant :DIR

    # @return [String] path of the config.ru
    attr_reader :path
    # @return [Array<String>] features that its Ruby must be able to require besides Rack: then it runs in servers alone, which have the
    #   lane's gems
    attr_reader :features

    # @param file [String] in bench/apps
    # @param features [Array<String>]
    # @yieldparam body [String] what the workload's request got. Without a block the app says what is right, run here
    # @yieldreturn [Boolean] whether it is right
    def initialize(file, features = [], &right)
      @path = File.join(DIR, file)
      @features = features
      @right = right
    end

    # @return [Boolean] whether it needs a framework, and with it the lane's Ruby
    def framework? = !features.empty?

    # @return [String] the body that `request` must get
    def body(request)
      parts = +""
      loaded.call(request.env).last.each { |part| parts << part }
      parts
    end

    # @param answered [String] the body that a server has sent
    # @return [Boolean] whether it is what `request` must get
    def right?(request, answered) = @right ? @right.call(answered) : answered == body(request)

    # Without Rack's builder: this Ruby may have no Rack. The apps use `run` alone.
    def run(app) = app

    private

    def loaded = @loaded ||= instance_eval(File.read(path), path)
  end
end
