# frozen_string_literal: true

require "json"
require "open3"

# Runs the script of the monitor's page in Node, with as much of a browser's document as it uses: it shows what the page says, not
# how that looks.
module PageScript
  DOCUMENT = <<~'JS'
    class Element {
      constructor(name) { Object.assign(this, { name, children: [], attributes: {}, dataset: {}, textContent: "", className: "" }); }
      append(...more) { this.children.push(...more); }
      replaceChildren(...all) { this.children = all; }
      setAttribute(name, value) { this.attributes[name] = String(value); }
      insertCell() { const cell = new Element("td"); this.append(cell); return cell; }
    }
    const known = {}, make = (_, name) => new Element(name ?? _);
    globalThis.document = { getElementById: id => known[id] ??= new Element(id), createElement: make, createElementNS: make };
    globalThis.location = { search: process.argv[3] };
    const [script, ...statuses] = JSON.parse(require("fs").readFileSync(0, "utf8")), asked = [];
    // When the last answer is shown, the page asks once more, which is the end.
    globalThis.fetch = async url => {
      asked.push(url);
      if (!statuses.length) { console.log(JSON.stringify({ ...known, asked })); process.exit(); }
      const status = statuses.shift();
      if (!status) throw new Error("no connection");
      return { ok: true, json: async () => status };
    };
    globalThis.setTimeout = next => setImmediate(next);
    require("vm").runInThisContext(script);
  JS

  module_function

  def missing = ("no node here" unless ENV.fetch("PATH", "").split(":").any? { |dir| File.executable?(File.join(dir, "node")) })

  # @param page [String] the page's HTML
  # @param statuses [Array<Hash, nil>] the answers that it gets, one after the other; nil: there is none
  # @return [Hash{String => Hash}] elements by id, with name, children, attributes, textContent; `asked` has the addresses
  def run(page, statuses, search: "")
    script = page[%r{<script>(.*)</script>}m, 1]
    output, status = Open3.capture2e("node", "-e", DOCUMENT, "x", "y", search, stdin_data: JSON.generate([script, *statuses]))
    raise "the page's script fails: #{output}" unless status.success?

    JSON.parse(output)
  end
end
