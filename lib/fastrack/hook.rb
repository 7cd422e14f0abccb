# frozen_string_literal: true

module Fastrack
  # before_fork and after_fork, as users write them.
  module Hook
    # Calls a hook with as many of the arguments as it takes: Rhebok's hooks take none, Unicorn's |server, worker|.
    #
    # @param hook [#call, nil]
    def self.call(hook, *arguments)
      return unless hook

      arity = arity_of(hook)
      hook.call(*(arity.negative? ? arguments : arguments.first(arity)))
    end

    # Of a proc's parameters that may be left out, all count: `proc { |server, worker = nil| }` wants both.
    def self.arity_of(hook)
      parameters = (hook.respond_to?(:parameters) ? hook : hook.method(:call)).parameters
      return -1 if parameters.any? { |kind, _| kind == :rest }

      parameters.count { |kind, _| %i[req opt].include?(kind) }
    end
    private_class_method :arity_of
  end
end
