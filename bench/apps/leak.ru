# frozen_string_literal: true

# The app of bench/leak: LEAK bytes of each request are kept for ever. What answers is LEAK_APP, a config.ru, or else a small app of
# Rails's, where there is Rails, or of Rack's.

leak = Integer(ENV.fetch("LEAK", "0"))

app =
  if ENV.key?("LEAK_APP")
    found = Rack::Builder.parse_file(ENV.fetch("LEAK_APP"))
    # Its lines are not what is measured.
    Rails.logger.level = :warn if defined?(Rails.logger) && Rails.logger
    found.is_a?(Array) ? found.first : found
  else
    begin
      require "rails"
      require "action_controller/railtie"

      rails = Class.new(Rails::Application) do
        config.eager_load = true
        config.secret_key_base = "x" * 30
        config.hosts.clear
        config.logger = Logger.new(IO::NULL)
      end
      Object.const_set(:LeakController, Class.new(ActionController::Base) do
        def show
          items = Array.new(200) { |number| { id: number, name: "item #{number}", tags: %w[a b c] } }
          render inline: "<% items.each do |item| %><p><%= item[:id] %> <%= item[:name] %></p><% end %>", locals: { items: items }
        end
      end)
      rails.initialize!
      rails.routes.draw { root to: "leak#show" }
      rails
    rescue LoadError
      ->(_env) { [200, {}, [Array.new(2000) { |number| "<p>#{number}</p>" }.join]] }
    end
  end

kept = []
run(lambda { |env|
  kept << ("x" * leak) if leak.positive?
  app.call(env)
})
