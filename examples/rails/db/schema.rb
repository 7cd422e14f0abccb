# frozen_string_literal: true

ActiveRecord::Schema[7.1].define(version: 1) do
  create_table :notes do |t|
    t.text :text, null: false
    t.timestamps
  end
end
