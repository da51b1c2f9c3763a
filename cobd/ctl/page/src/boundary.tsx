// Keeps the frame of the page when a view fails.
import { Component, type ComponentChildren } from "preact";

export class Boundary extends Component<{ children: ComponentChildren }, { error: string }> {
  override state = { error: "" };

  override componentDidCatch(error: unknown): void {
    console.error(error);
    this.setState({ error: error instanceof Error ? error.message : String(error) });
  }

  override render() {
    if (this.state.error === "") return this.props.children;
    return (
      <div class="view">
        <h1>This view failed</h1>
        <p>
          The program of the page has an error: <code>{this.state.error}</code>. The other views still work. Please report it.
        </p>
      </div>
    );
  }
}
