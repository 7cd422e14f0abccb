# frozen_string_literal: true

# An entry for TechEmpower's benchmark (https://github.com/TechEmpower/FrameworkBenchmarks): its tests on plain Rack and PostgreSQL.
require "erb"
require "json"
require "pg"

# Serves the benchmark's tests.
class TechEmpower
  IDS = (1..10_000).to_a.freeze
  STATEMENTS = {
    "world" => 'SELECT id, randomnumber AS "randomNumber" FROM world WHERE id = $1',
    "update" => "UPDATE world SET randomnumber = new.number FROM unnest($1::int[], $2::int[]) AS new (id, number) WHERE world.id = new.id",
    "fortunes" => "SELECT id, message FROM fortune"
  }.freeze
  ERB.new(<<~HTML, trim_mode: "-").def_method(self, "page(fortunes)")
    <!DOCTYPE html>
    <html>
    <head><title>Fortunes</title></head>
    <body>
    <table>
    <tr><th>id</th><th>message</th></tr>
    <%- fortunes.each do |fortune| -%>
    <tr><td><%= fortune["id"] %></td><td><%= ERB::Util.html_escape(fortune["message"]) %></td></tr>
    <%- end -%>
    </table>
    </body>
    </html>
  HTML

  def call(env)
    case env["PATH_INFO"]
    when "/plaintext" then respond("text/plain", "Hello, World!")
    when "/json" then json({ message: "Hello, World!" })
    when "/db" then json(worlds(1).first)
    when "/queries" then json(worlds(count(env)))
    when "/updates" then json(update(worlds(count(env))))
    when "/fortunes" then respond("text/html; charset=utf-8", page(fortunes))
    else [404, { "content-type" => "text/plain" }, ["not found"]]
    end
  end

  private

  def respond(type, body) = [200, { "content-type" => type }, [body]]

  def json(object) = respond("application/json", JSON.generate(object))

  # Anything but a number counts as 1.
  def count(env) = env["QUERY_STRING"].delete_prefix("queries=").to_i.clamp(1, 500)

  # In the order of their ids, so that no two updates wait for each other.
  def worlds(count) = IDS.sample(count).sort.map { |id| rows("world", [id]).first }

  def update(worlds)
    worlds.each { |world| world["randomNumber"] = rand(1..10_000) }
    rows("update", %w[id randomNumber].map { |name| "{#{worlds.map { |world| world[name] }.join(",")}}" })
    worlds
  end

  def fortunes
    all = rows("fortunes", []) << { "id" => 0, "message" => "Additional fortune added at request time." }
    all.sort_by { |fortune| fortune["message"] }
  end

  def rows(statement, values) = database.exec_prepared(statement, values).to_a

  # Each thread has a connection, which the thread makes when it first needs one.
  def database
    Thread.current[:database] ||= PG.connect.tap do |connection|
      connection.type_map_for_results = PG::BasicTypeMapForResults.new(connection)
      STATEMENTS.each { |name, sql| connection.prepare(name, sql) }
    end
  end
end

run TechEmpower.new
