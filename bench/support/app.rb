# frozen_string_literal: true

module Bench
  # A config.ru of bench/apps.
  class App
    DIR = File.expand_path("../apps", __dir__)
    private_constant :DIR

    attr_reader :path

    # @param framework [Boolean] whether it needs more than Rack. Then it runs in servers alone, which have the lane's gems
    # @yieldparam body [String] what the workload's request got. Without a block the app says what is right, run here
    def initialize(file, framework: false, &right)
      @path = File.join(DIR, file)
      @framework = framework
      @right = right
    end

    def framework? = @framework

    # @return [String] the body that `request` must get
    def body(request)
      parts = +""
      loaded.call(request.env).last.each { |part| parts << part }
      parts
    end

    # @return [Boolean] whether it is what `request` must get
    def right?(request, answered) = @right ? @right.call(answered) : answered == body(request)

    # Without Rack's builder: this Ruby may have no Rack. The apps use `run` alone.
    def run(app) = app

    private

    def loaded = @loaded ||= instance_eval(File.read(path), path)
  end
end
